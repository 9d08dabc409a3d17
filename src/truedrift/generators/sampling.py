"""x_i = f(z_i, c_i, s_i, k_i), where noise z_i and style k_i are a pure function of (seed, i).

Noise is drawn in blocks of 64 ids, each block from the stream (seed, "sample", block). A sample is the same whatever
the batch size and whatever else is sampled, up to the rounding of matrix products of other sizes.
"""

from __future__ import annotations

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.errors import UserError, require_integer
from truedrift.generators.base import Generator
from truedrift.seeding import stream

BLOCK = 64


def sample(
    generator: Generator,
    labels: Int[Tensor, " N"],
    *,
    seed: int,
    strength: float | Float[Tensor, " N"] = 1.0,
    batch: int = 256,
    first_id: int = 0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "N ..."]:
    """Samples of these labels, in float32 on the CPU; their ids are first_id … first_id + N − 1.

    The generator is moved to `device` if one is named, and computes where it is otherwise.
    """
    _require_labels(labels, generator.classes)
    require_integer("batch", batch, 1, 256)
    require_integer("first_id", first_id, 0, 0)
    strengths = _strengths(strength, len(labels))
    if device is not None:
        generator.to(device)
    samples = torch.empty(len(labels), *generator.sample_shape)
    with torch.no_grad():
        for start in range(0, len(labels), batch):
            rows = slice(start, min(start + batch, len(labels)))
            z, style_ids = draw_inputs(generator, range(first_id + rows.start, first_id + rows.stop), seed)
            like = next(generator.parameters(), z)  # a generator may have no parameters
            samples[rows] = generator(
                z.to(like), labels[rows].long().to(like.device), strengths[rows].to(like), style_ids.to(like.device)
            )
    return samples


def draw_inputs(
    generator: Generator, ids: range, seed: int
) -> tuple[Float[Tensor, "ids ..."], Int[Tensor, "ids style_draws"]]:
    """z and style ids of the samples `ids`, on the CPU."""
    if ids.step != 1 or ids.start < 0:
        raise UserError(f"ids are {ids!r}", "allowed are consecutive ids from 0", "pass range(first, last + 1)")
    if len(ids) == 0:
        return torch.empty(0, *generator.noise_shape), torch.empty(0, generator.style_draws, dtype=torch.long)
    first = ids.start // BLOCK
    blocks = [_block(generator, seed, block) for block in range(first, (ids.stop - 1) // BLOCK + 1)]
    rows = slice(ids.start - first * BLOCK, ids.stop - first * BLOCK)
    z, style_ids = (torch.cat(part)[rows] for part in zip(*blocks, strict=True))
    return z, style_ids


def _block(generator: Generator, seed: int, block: int) -> tuple[Tensor, Tensor]:
    numbers = stream(seed, "sample", block)
    z = torch.randn(BLOCK, *generator.noise_shape, generator=numbers)
    # At least one entry to choose from, so that a generator without styles can be asked for none.
    entries = max(generator.style_entries, 1)
    return z, torch.randint(entries, (BLOCK, generator.style_draws), generator=numbers)


def _strengths(strength: float | Tensor, count: int) -> Tensor:
    strengths = torch.as_tensor(strength, dtype=torch.float32)
    if strengths.shape not in ((), (count,)):
        came = f"strength has shape {list(strengths.shape)}"
        raise UserError(came, f"allowed is one number, or [{count}]", "give one a label")
    return strengths.expand(count)


def _require_labels(labels: Tensor, classes: int) -> None:
    if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.dtype.is_floating_point:
        came = f"{labels.dtype} of shape {list(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise UserError(f"labels are {came}", "allowed is an int64 tensor [N]", "pass one label a sample")
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) <= classes):
        came = f"labels run from {int(labels.min())} to {int(labels.max())}"
        raise UserError(came, f"allowed are 0 to {classes - 1}, and {classes} for none", "check the labels")
