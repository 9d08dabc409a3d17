"""`truedrift convert FILE`: a published checkpoint → a folder of config.json and safetensors."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from truedrift.errors import UserError, require_integer
from truedrift.quarantine.convert import convert_pickle, require_checkpoint
from truedrift.records.store import writable_directory


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Bring a published DriftDiT checkpoint (.pt, .pth, .safetensors) over to config.json + safetensors.

    The pickle is read by a process of its own, as weights alone: nothing in it is executed. Its EMA weights are taken
    if there are any. Sizes of the network are read off its tensors.

    Try it:
      truedrift convert checkpoint.pt
      truedrift convert checkpoint.pt --weights model --out converted
    """

    file: Annotated[Path, tyro.conf.Positional]
    """The checkpoint."""

    out: Path | None = None
    """Folder to write; FILE without its extension if none is named. A folder with files in it is refused."""

    weights: Literal["auto", "ema", "model"] = "auto"
    """Which weights; auto takes those of the EMA if there are any."""

    image_size: int | None = None
    """Height and width of the images, where the checkpoint does not tell (32 is taken) or tells wrongly."""

    style_draws: int | None = None
    """Style vectors summed for a sample, which no checkpoint tells; 32, the published number, if none is given."""

    def prepare(self) -> Callable[[], str]:
        """Check the file and the folder."""
        require_checkpoint(self.file)
        out = self.out or self.file.with_suffix("")
        _require_new(out)
        if self.image_size is not None and self.image_size < 1:
            came = f"image_size is {self.image_size}"
            raise UserError(came, "allowed is an integer from 1", "take for example --image-size 32")
        if self.style_draws is not None:
            require_integer("style_draws", self.style_draws, 0, 32)
        writable_directory(out.absolute().parent)
        return partial(_convert, self, out)


def _require_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        came = f"{str(out)!r} is {'a folder with files in it' if out.is_dir() else 'a file'}"
        raise UserError(came, "allowed is a new or an empty folder", "name another one with --out")


def _convert(options: Convert, out: Path) -> str:
    from safetensors.torch import load_file  # noqa: PLC0415  with the networks below, half a second of imports

    from truedrift.generators.base import CONFIG, WEIGHTS  # noqa: PLC0415
    from truedrift.generators.pretrained import load_published  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=".truedrift-") as room:
        tensors = Path(room) / "tensors.safetensors"
        convert_pickle(options.file, tensors)
        found = load_published(
            load_file(tensors),
            weights=options.weights,
            image_size=options.image_size,
            style_draws=options.style_draws,
        )
        saved = Path(room) / "saved"
        found.generator.save_pretrained(saved)
        shutil.copymode(saved / CONFIG, saved / WEIGHTS)  # safetensors writes for the owner alone
        if out.is_dir():
            out.rmdir()  # it is empty
        os.replace(saved, out)
    generator = found.generator
    size = generator.options
    count = sum(parameter.numel() for parameter in generator.parameters())
    name = found.weights.rstrip(".") or "the file itself"
    told = "" if found.image_size_told else " (not told by the checkpoint: see --image-size)"
    assumed = "" if found.style_draws_told else " (assumed, no checkpoint tells: see --style-draws)"
    return "\n".join(
        (
            f"DriftDiT {size.width} × {size.depth}, {size.heads} heads, {count:,} parameters",
            f"{generator.classes} classes, images {' × '.join(map(str, generator.sample_shape))}{told}",
            f"{size.style_draws} style draws{assumed}",
            f"weights: {'EMA' if found.averaged else 'model'}, from {name}",
            f"written: {out}",
        )
    )
