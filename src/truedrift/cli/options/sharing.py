"""Options of the commands that share models: export, push and serve."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from truedrift.cli.options.command import Command, named

USUAL_PORT = 7860
"""Port of `truedrift serve`."""


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a folder for the Hugging Face Hub: weights, config, model card and samples; optionally ONNX.

    The card states data, training and metrics with their protocol, as the files of the run have them. Load the folder
    with truedrift.load(DIR); upload it with truedrift push.

    Try it:
      truedrift export pretrained:digits my-digits --half
      truedrift export runs/digits-abc-n120-seed0-012345 my-digits --license mit
      truedrift export runs/digits-abc-n120-seed0-012345 my-digits --onnx
    """

    work = "truedrift.cli.export"

    run: Annotated[Path, tyro.conf.Positional, named("RUN")]
    """Run directory, a saved model, or a pretrained model such as pretrained:digits."""

    folder: Annotated[Path, tyro.conf.Positional, named("DIR")]
    """Folder to write, new or empty."""

    half: bool = False
    """Write the weights as float16: half the size. Samples are still computed in float32."""

    onnx: bool = False
    """Also write model.onnx with float32 weights, and compare it with torch (extra onnx)."""

    license: Annotated[str | None, named("NAME")] = None
    """License of the weights, as the Hub spells it, such as mit or cc-by-4.0; "unknown" if not given."""


@dataclass(frozen=True, kw_only=True)
class Push(Command):
    """Upload a model to the Hugging Face Hub as USER/NAME.

    A run or a saved model is exported first, as by truedrift export. A folder of truedrift export is sent as it is, so
    that you can edit its card before; only the files that export writes are sent. A token with write access is
    required: run hf auth login, or set HF_TOKEN.

    Try it:
      truedrift push pretrained:digits your-name/digits --dry-run
      truedrift push my-digits your-name/digits --private
    """

    work = "truedrift.cli.push"

    run: Annotated[Path, tyro.conf.Positional, named("RUN")]
    """Run directory, a saved model, a pretrained model such as pretrained:digits, or a folder of truedrift export."""

    name: Annotated[str, tyro.conf.Positional, named("USER/NAME")]
    """Name of the model on the Hub. It is made if it is missing."""

    private: bool = False
    """Make the model private."""

    dry_run: bool = False
    """List what would be sent, with sizes, and send nothing."""

    half: bool = False
    """Send the weights as float16."""

    onnx: bool = False
    """Also send model.onnx (extra onnx)."""

    license: Annotated[str | None, named("NAME")] = None
    """License of the weights, as the Hub spells it, such as mit or cc-by-4.0; "unknown" if not given."""


@dataclass(frozen=True, kw_only=True)
class Serve(Command):
    """Open a local page that draws samples of a model: class, seed and strength; save them as PNG.

    The page is served on 127.0.0.1, for this computer only, and requests nothing from a network. End it with Ctrl-C.
    It needs the extra serve.

    Try it:
      truedrift serve pretrained:cifar10
      truedrift serve runs/digits-abc-n120-seed0-012345 --port 0 --no-browser
    """

    work = "truedrift.cli.serve"

    run: Annotated[Path, tyro.conf.Positional, named("RUN")]
    """Run directory, a saved model, a pretrained model such as pretrained:digits, or USER/NAME on the Hugging Face
    Hub."""

    port: Annotated[int, named("PORT")] = USUAL_PORT
    """Port of the page; 0 for any free one."""

    browser: bool = True
    """Open the page in a browser."""
