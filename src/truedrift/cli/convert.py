"""`truedrift convert FILE`: convert a published checkpoint to a folder with config.json and safetensors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from truedrift.errors import UserError, require_integer
from truedrift.generators.pretrained import convert_published
from truedrift.quarantine import require_checkpoint
from truedrift.records.store import writable_directory


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Convert a published DriftDiT checkpoint (.pt, .pth, .safetensors) to config.json + safetensors.

    A separate process reads the pickle as weights only; nothing in it is executed. EMA weights are preferred if there
    are any. The sizes of the network are inferred from the shapes of its tensors.

    Try it:
      truedrift convert checkpoint.pt
      truedrift convert checkpoint.pt --weights model --out converted
    """

    file: Annotated[Path, tyro.conf.Positional]
    """The checkpoint file."""

    out: Path | None = None
    """Folder to write, new or empty; FILE without its extension if not given."""

    weights: Literal["auto", "ema", "model"] = "auto"
    """Which weights to convert; auto prefers the EMA weights."""

    image_size: int | None = None
    """Height and width of the images; pass it if the checkpoint contains a wrong value or none (32 is then assumed)."""

    style_draws: int | None = None
    """Number of style vectors summed per sample. Checkpoints do not contain it; if not given, 32 as published."""

    def prepare(self) -> Callable[[], str]:
        """Check the file, the folder and the options."""
        require_checkpoint(self.file)
        out = self.out or self.file.with_suffix("")
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            problem = f"{str(out)!r} is {'not empty' if out.is_dir() else 'a file'}"
            raise UserError(problem, "must be a new or empty folder", "pass another one with --out")
        if self.image_size is not None:
            require_integer("image_size", self.image_size, 1, 32)
        if self.style_draws is not None:
            require_integer("style_draws", self.style_draws, 0, 32)
        writable_directory(out.absolute().parent)
        return partial(_convert, self, out)


def _convert(options: Convert, out: Path) -> str:
    """Convert the checkpoint; describe the network, its weights, and what had to be assumed."""
    published = convert_published(
        options.file, out, weights=options.weights, image_size=options.image_size, style_draws=options.style_draws
    )
    # Describe the result.
    generator, size = published.generator, published.generator.options
    source = published.weights.rstrip(".") or "the file itself"
    count = sum(parameter.numel() for parameter in generator.parameters())
    size_note = "" if published.image_size_known else " (assumed, not in the checkpoint: see --image-size)"
    style_note = "" if published.style_draws_known else " (assumed, not in any checkpoint: see --style-draws)"
    return "\n".join(
        (
            f"DriftDiT {size.width} × {size.depth}, {size.heads} heads, {count:,} parameters",
            f"{generator.classes} classes, images {' × '.join(map(str, generator.sample_shape))}{size_note}",
            f"{size.style_draws} style draws{style_note}",
            f"weights: {'EMA' if published.averaged else 'model'}, from {source}",
            f"written: {out}",
        )
    )
