"""Features of the real images of a step: encoded as they come, or looked up where both views of each are kept.

Encoding is dealt out over the processes by rows and gathered; looking up is done by each for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from truedrift import collectives
from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, ClassBatches, gathered
from truedrift.data.samples import Samples, to_model
from truedrift.encoders.scales import stack
from truedrift.training.transfer import to_device

Encode = Callable[[Tensor], tuple[Tensor, ...]]


class Lookup(Protocol):
    """Features of the images of a batch."""

    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        """[rows, S, D] for indices [rows]."""
        ...


class Positives:
    """The positives of every class, and unconditional negatives, by step."""

    def __init__(self, batches: ClassBatches, lookup: Lookup, unconditional: int = 0) -> None:
        self.batches, self.lookup, self.unconditionals = batches, lookup, unconditional

    def at(self, step: int) -> Float[Tensor, "S C n D"]:
        """The positives of that step."""
        batch = self.batches.at(step)
        features = self.lookup(Batch(batch.indices.flatten(), batch.mirrored.flatten()))
        return features.transpose(0, 1).unflatten(1, tuple(batch.indices.shape))

    def unconditional(self, step: int) -> Float[Tensor, "S u D"]:
        """Images of any class at that step."""
        return self.lookup(self.batches.unconditional(step, self.unconditionals)).transpose(0, 1)


class Encoded:
    """Encodes the images of a batch, at most `at_once` at a time."""

    def __init__(
        self, samples: Samples, encode: Encode, *, device: torch.device, dtype: torch.dtype, at_once: int | None
    ) -> None:
        self.samples, self.encode, self.device, self.dtype, self.at_once = samples, encode, device, dtype, at_once

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        total = len(batch.indices)
        start, end = collectives.bounds(total)
        own = Batch(batch.indices[start:end], batch.mirrored[start:end])
        values = to_device(gathered(self.samples.values, own), self.device)
        parts = values.split(self.at_once or max(1, len(values)))
        features = torch.cat([self._features(part) for part in parts])
        return collectives.gather_rows(features, total)

    def _features(self, values: Tensor) -> Tensor:
        groups = self.encode(to_model(values).to(self.dtype))
        return stack([f.to(torch.promote_types(f.dtype, torch.float32)) for f in groups]).transpose(0, 1)
