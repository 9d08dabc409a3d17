"""(φ_1(x), …, φ_S(x), x): the samples themselves as one more feature group, beside those of an encoder.

Pooled features say what is in an image and little of where. The pixels of positives are read from the images in memory,
so that kept features stay as small as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, gathered
from truedrift.data.samples import Samples, to_model
from truedrift.encoders.scales import stack
from truedrift.training.positives import Encode, Lookup
from truedrift.training.transfer import to_device


@dataclass(frozen=True)
class EncodedBeside:
    """An encoder's groups, then the values."""

    encode: Encode

    def __call__(self, values: Tensor) -> tuple[Tensor, ...]:
        return (*self.encode(values), values.flatten(1))


@dataclass(frozen=True)
class LookedUpBeside:
    """The same of real images whose features are looked up."""

    lookup: Lookup
    samples: Samples

    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        features = self.lookup(batch)
        values = to_device(gathered(self.samples.values, batch), features.device)
        pixels = to_model(values).to(features.dtype).flatten(1)
        return stack((*features.unbind(1), pixels)).transpose(0, 1)
