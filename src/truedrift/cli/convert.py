"""`truedrift convert FILE`: convert a published checkpoint to a folder with config.json and safetensors."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from truedrift.cli.options.models import Convert
from truedrift.errors import UserError, require_integer
from truedrift.generators.pretrained import convert_published
from truedrift.quarantine import require_checkpoint
from truedrift.records.store import writable_directory


def prepare(command: Convert) -> Callable[[], str]:
    """Check the file, the folder and the options."""
    require_checkpoint(command.file)
    out = command.out or command.file.with_suffix("")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        problem = f"{str(out)!r} is {'not empty' if out.is_dir() else 'a file'}"
        raise UserError(problem, "must be a new or empty folder", "pass another one with --out")
    if command.image_size is not None:
        require_integer("image_size", command.image_size, 1, 32)
    if command.style_draws is not None:
        require_integer("style_draws", command.style_draws, 0, 32)
    writable_directory(out.absolute().parent)
    return partial(_convert, command, out)


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
