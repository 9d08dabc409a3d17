"""`truedrift export RUN DIR`: write a folder for the Hugging Face Hub, with a model card."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from truedrift.cli.sample import RUN_HELP
from truedrift.errors import UserError
from truedrift.records.store import writable_directory
from truedrift.share.card import ONNX
from truedrift.share.export import ExportedFolder, export_model


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a folder for the Hugging Face Hub: weights, config, model card and samples; optionally ONNX.

    The card states data, training and metrics with their protocol, as the files of the run have them. Load the folder
    with truedrift.load(DIR); upload it with truedrift push.

    Try it:
      truedrift export pretrained:digits my-digits --half
      truedrift export runs/digits-0123456789ab my-digits --license mit
      truedrift export runs/digits-0123456789ab my-digits --onnx
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(help=RUN_HELP)]

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder to write, new or empty."""

    half: bool = False
    """Write the weights as float16: half the size. Samples are still computed in float32."""

    onnx: bool = False
    """Also write model.onnx with float32 weights, and compare it with torch (extra onnx)."""

    license: str | None = None
    """License of the weights, as the Hub spells it, such as mit or cc-by-4.0; "unknown" if not given."""

    def prepare(self) -> Callable[[], str]:
        """Check the folder and the license."""
        require_license(self.license)
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            problem = f"{str(self.folder)!r} is {'not empty' if self.folder.is_dir() else 'a file'}"
            raise UserError(problem, "must be a new or empty folder", "pass another one")
        writable_directory(self.folder.absolute().parent)
        return partial(_export, self)


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
