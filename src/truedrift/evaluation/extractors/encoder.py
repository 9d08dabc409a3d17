"""`encoder:NAME`: the feature groups of a frozen encoder, side by side, as one feature.

Any encoder that a run can be trained on, with its default options. A run should not be judged by the network that gave
its training features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from truedrift.axes import Tensor
from truedrift.data.samples import to_model
from truedrift.encoders import build
from truedrift.encoders.catalog import OPTIONS
from truedrift.evaluation.extractors.base import Extracted, Extractor


class EncoderExtractor(Extractor):
    """For samples of one shape."""

    def __init__(self, kind: str, sample_shape: Sequence[int], device: torch.device) -> None:
        encoder = build(OPTIONS[kind](), sample_shape=sample_shape)
        self.name = f"encoder:{kind}"
        self.prepared = "points as they are" if len(sample_shape) == 1 else "uint8 → [−1, 1], then as in training"
        self.sha256 = encoder.fingerprint()
        self.dimensions = sum(encoder.dimensions)
        self.device = device
        self._encoder = encoder.to(device)

    def __call__(self, values: Tensor) -> Extracted:
        with torch.no_grad():
            return Extracted(torch.cat(self._encoder(to_model(values.to(self.device))), 1))
