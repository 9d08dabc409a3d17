"""`truedrift push RUN USER/NAME`: upload a model to the Hugging Face Hub."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from truedrift.cli.export import require_license
from truedrift.cli.options.sharing import Push
from truedrift.errors import UserError
from truedrift.hub import require_hub_name, require_token, upload_model
from truedrift.share.export import FILES, copy_exported, export_model, is_exported, list_files
from truedrift.storage import scratch_directory


def prepare(command: Push) -> Callable[[], str]:
    """Check the name, the options and the token."""
    require_hub_name(command.name)
    require_license(command.license)
    if is_exported(command.run) and (command.half or command.onnx or command.license is not None):
        problem = f"{str(command.run)!r} is an exported folder, which is sent as it is"
        raise UserError(problem, "half, onnx and license are options of the export", "pass them to truedrift export")
    if not command.dry_run:
        require_token()
    return partial(_push, command)


def _push(options: Push) -> str:
    """Export the model to a temporary folder, and send it."""
    with scratch_directory(Path(tempfile.gettempdir()), "truedrift-push-") as scratch:
        folder = scratch / "model"
        if is_exported(options.run):
            copy_exported(options.run, folder, options.name)
        else:
            export_model(
                *(options.run, folder),
                half=options.half,
                onnx=options.onnx,
                license_name=options.license,
                name=options.name,
            )
        files = list_files(folder)
        lines = [f"{size:12,} bytes  {name}" for name, size in files]
        total = sum(size for _, size in files)
        kind = "private" if options.private else "public"
        if options.dry_run:
            lines.append(
                f"would be sent to {options.name} ({kind}): {len(files)} files, {total:,} bytes; nothing was sent"
            )
            return "\n".join(lines)
        address = upload_model(folder, options.name, FILES, private=options.private)
    return "\n".join((*lines, f"sent: {address}", f'load: truedrift.load("{options.name}")'))
