"""Samples to be judged: id i is of class i mod C, its noise and style are a function of (seed, i) alone.

Any count is balanced to within one sample a class, the first m of them are the same whatever the count, and neither
batch size nor the number of processes changes them. Images are rounded to bytes, as a viewer of the file would see
them; points stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from truedrift import collectives
from truedrift.axes import Tensor
from truedrift.data.samples import to_uint8
from truedrift.generators.base import Generator
from truedrift.generators.sampling import sample
from truedrift.validation import mistake

LABELS = "balanced"


def drawn(
    generator: Generator, count: int, *, seed: int, strength: float, batch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """(ids, values) of this process's part of the samples, batch by batch; uint8 images or float32 points."""
    first, end = collectives.bounds(count)
    for start in range(first, end, batch):
        ids = torch.arange(start, min(start + batch, end))
        values = sample(generator, ids % generator.classes, seed=seed, strength=strength, batch=batch, first_id=start)
        _require_finite(values, start)
        yield ids, to_uint8(values) if values.ndim == 4 else values


def _require_finite(values: Tensor, first: int) -> None:
    """What is not a number would become a black pixel, and be judged as one."""
    bad = ~torch.isfinite(values).flatten(1).all(1)
    if bad.any():
        number = first + int(bad.nonzero()[0])
        raise mistake(f"sample {number} is not finite", "allowed are numbers", "take weights that have not diverged")
