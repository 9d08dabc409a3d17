"""a_s = σ(K'_s * σ(K_s * a_{s−1})): a small convolutional network with fixed random weights, pooled stage by stage.

It needs no download. Random filters already tell strokes and textures apart well enough to drift small images. Stage
1 keeps the resolution, each further stage halves it (rounding up); σ is a leaky ReLU of slope 0.2, the convolutions
are 3×3 with zeros around and without offsets.

Weights are uniform on ±√(6/(fan_in (1 + 0.2²))) (He et al. 2015), drawn from `stream(seed, "convnet", number)`.
Uniform draws are made of integers by exact arithmetic, so the same torch gives the same weights on every machine;
Gaussian ones, or orthogonal ones with their factorization, would differ in the last digits between processors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.encoders.base import Encoder
from truedrift.encoders.option_checks import replace_field, require_image, require_whole, whole_numbers
from truedrift.encoders.pooling import Pooling, pooled, pooled_dimensions, require_map, require_pooling
from truedrift.seeding import stream

SLOPE = 0.2


@dataclass(frozen=True, kw_only=True)
class ConvNetOptions:
    """A feature group (or several, by pooling) a stage."""

    kind: Literal["convnet"] = "convnet"
    seed: int = 0
    """Of the weights."""
    channels: tuple[int, ...] = (32, 64, 128)
    """D_s of each stage."""
    pooling: Pooling = "mean"

    def __post_init__(self) -> None:
        require_whole("seed", self.seed, 0)
        replace_field(self, "channels", whole_numbers("channels", self.channels, 1))
        require_pooling(self.pooling)


class ConvNet(Encoder):
    """Images [B, C, H, W] of any C, from 8×8 on."""

    def __init__(self, options: ConvNetOptions, *, sample_shape: Sequence[int]) -> None:
        require_image('the encoder "convnet"', sample_shape)
        inputs, height, width = sample_shape
        halvings = len(options.channels) - 1
        require_map(options.pooling, (_halved(height, halvings), _halved(width, halvings)))
        stages = zip((inputs, *options.channels), options.channels, strict=False)
        network = nn.ModuleList(
            _stage(inside, outside, position, options.seed) for position, (inside, outside) in enumerate(stages)
        )
        dimensions = pooled_dimensions(options.channels, options.pooling)
        super().__init__(options, sample_shape=sample_shape, network=network, dimensions=dimensions)

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        return pooled(self.maps(values), self.options.pooling)

    def maps(self, values: Float[Tensor, "B C H W"]) -> list[Tensor]:
        """a_s of every stage."""
        maps = []
        for stage in self.network.children():
            for convolution in stage.children():
                values = F.leaky_relu(convolution(values), SLOPE)
            maps.append(values)
        return maps


def _stage(inside: int, outside: int, position: int, seed: int) -> nn.ModuleList:
    stride = 1 if position == 0 else 2
    return nn.ModuleList(
        [_drawn(inside, outside, stride, seed, 2 * position), _drawn(outside, outside, 1, seed, 2 * position + 1)]
    )


def _drawn(inside: int, outside: int, stride: int, seed: int, number: int) -> nn.Conv2d:
    """The convolution of that number, with its weights from a stream of their own."""
    convolution = nn.utils.skip_init(nn.Conv2d, inside, outside, 3, stride=stride, padding=1, bias=False)
    bound = math.sqrt(6 / (9 * inside * (1 + SLOPE**2)))
    drawn = torch.rand(outside, inside, 3, 3, generator=stream(seed, "convnet", number))
    with torch.no_grad():
        convolution.weight.copy_((2 * drawn - 1) * bound)
    return convolution


def _halved(side: int, times: int) -> int:
    """⌈side / 2^times⌉, as the strided convolutions round."""
    return -(-side // 2**times)
