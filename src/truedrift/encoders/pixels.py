"""x = the values themselves, flattened to [B, D]: for points in the plane, and images small enough to compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from truedrift.axes import Tensor
from truedrift.encoders.base import Encoder
from truedrift.encoders.option_checks import require_sample_shape


@dataclass(frozen=True, kw_only=True)
class PixelsOptions:
    """There is nothing to choose."""

    kind: Literal["pixels"] = "pixels"


class Pixels(Encoder):
    """One group of D = C·H·W, or D for points."""

    def __init__(self, options: PixelsOptions, *, sample_shape: Sequence[int]) -> None:
        require_sample_shape(sample_shape)
        super().__init__(
            options, sample_shape=sample_shape, network=nn.Identity(), dimensions=(math.prod(sample_shape),)
        )

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        return (values.flatten(1),)
