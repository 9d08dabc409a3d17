"""`truedrift push RUN USER/NAME`: upload a model to the Hugging Face Hub."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import tyro

from truedrift.cli.export import require_license
from truedrift.cli.sample import RUN_HELP
from truedrift.errors import UserError
from truedrift.hub import require_hub_name, require_token, upload_model
from truedrift.share.export import FILES, copy_exported, export_model, is_exported, list_files


@dataclass(frozen=True, kw_only=True)
class Push:
    """Upload a model to the Hugging Face Hub as USER/NAME.

    A run or a saved model is exported first, as by truedrift export. A folder of truedrift export is sent as it is, so
    that you can edit its card before; only the files that export writes are sent. A token with write access is
    required: run hf auth login, or set HF_TOKEN.

    Try it:
      truedrift push pretrained:digits your-name/digits --dry-run
      truedrift push my-digits your-name/digits --private
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(help=f"{RUN_HELP} Or a folder of truedrift export.")]

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="USER/NAME")]
    """Name of the model on the Hub. It is made if it is missing."""

    private: bool = False
    """Make the model private."""

    dry_run: bool = False
    """List what would be sent, with sizes, and send nothing."""

    half: bool = False
    """Send the weights as float16."""

    onnx: bool = False
    """Also send model.onnx (extra onnx)."""

    license: str | None = None
    """License of the weights, as the Hub spells it, such as mit or cc-by-4.0; "unknown" if not given."""

    def prepare(self) -> Callable[[], str]:
        """Check the name, the options and the token."""
        require_hub_name(self.name)
        require_license(self.license)
        if is_exported(self.run) and (self.half or self.onnx or self.license is not None):
            problem = f"{str(self.run)!r} is an exported folder, which is sent as it is"
            raise UserError(
                problem, "half, onnx and license are options of the export", "pass them to truedrift export"
            )
        if not self.dry_run:
            require_token()
        return partial(_push, self)


def _push(options: Push) -> str:
    """Export the model to a temporary folder, and send it."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
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
