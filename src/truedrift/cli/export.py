"""`truedrift export RUN DIR`: write a folder for the Hugging Face Hub, with a model card."""

import re
from collections.abc import Callable
from functools import partial

from truedrift.cli.options.sharing import Export
from truedrift.errors import UserError
from truedrift.records.store import writable_directory
from truedrift.share.card import ONNX
from truedrift.share.export import ExportedFolder, export_model


def prepare(command: Export) -> Callable[[], str]:
    """Check the folder and the license."""
    require_license(command.license)
    if command.folder.exists() and (not command.folder.is_dir() or any(command.folder.iterdir())):
        problem = f"{str(command.folder)!r} is {'not empty' if command.folder.is_dir() else 'a file'}"
        raise UserError(problem, "must be a new or empty folder", "pass another one")
    writable_directory(command.folder.absolute().parent)
    return partial(_export, command)


def require_license(name: str | None) -> None:
    """Require the name of a license as the Hub spells it."""
    if name is not None and re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,49}", name) is None:
        allowed = "must be a name of the Hub, in lower case"
        raise UserError(f"is {name!r}", allowed, "pass for example mit, apache-2.0 or other", field="license")


def _export(options: Export) -> str:
    exported = export_model(
        options.run, options.folder, half=options.half, onnx=options.onnx, license_name=options.license
    )
    lines = [f"{size:12,} bytes  {name}" for name, size in exported.files()]
    if options.onnx:
        lines.append(_describe_check(exported))
    return "\n".join((*lines, f"written: {options.folder}", f"next: truedrift push {options.folder} USER/NAME"))


def _describe_check(exported: ExportedFolder) -> str:
    if exported.onnx_difference is None:
        return f"{ONNX} was not checked: onnxruntime is not installed; run pip install 'truedrift[onnx]'"
    return f"{ONNX}: onnxruntime and torch differ by {exported.onnx_difference:.1e} of the largest output"
