"""ConvNet: a small convolutional network with fixed random weights, a_s = σ(K'_s * σ(K_s * a_{s−1})), pooled per stage.

It needs no download. The fraction of nearest neighbors that are of the same class is about that of pixels on the digits
of scikit-learn (0.92 to 0.94) and a little higher on CIFAR-10 (0.29 to 0.34 depending on the pooling, pixels 0.28; 10
neighbors among 4000). Trained networks are far better there (EfficientNet-Lite0 0.59).

Stage 1 keeps the resolution, each further stage halves it (rounding up). σ is a leaky ReLU of slope 0.2; the
convolutions are 3×3, zero-padded, without bias.

Weights are uniform on ±√(6/(fan_in (1 + 0.2²))) (He et al. 2015), drawn from `stream(seed, "convnet", number)`.
Uniform draws come from integers by exact arithmetic, so the same torch gives the same weights on every machine.
Gaussian draws, or orthogonal ones with their factorization, may differ in the last digits between processors.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.encoders.base import MapEncoder, require_image
from truedrift.encoders.pooling import parse_poolings
from truedrift.errors import require_integer, require_integers
from truedrift.options import use_plain_integers
from truedrift.seeding import stream

SLOPE = 0.2


@dataclass(frozen=True, kw_only=True)
class ConvNetOptions:
    """Options of `ConvNet`, which has one feature group per stage (several with some poolings)."""

    kind: Literal["convnet"] = "convnet"
    seed: int = 0
    """Seed of the weights."""
    channels: tuple[int, ...] = (32, 64, 128)
    """Channels D_s of each stage."""
    pooling: str = "mean"
    """How feature maps become groups, see `truedrift.encoders.pooling`: one name, or one per stage with commas."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        require_integer("seed", self.seed, 0, 0)
        require_integers("channels", self.channels, 1)
        parse_poolings(self.pooling, len(self.channels))


class ConvNet(MapEncoder):
    """Encoder of images [B, C, H, W] of any number of channels and size; every pooling works from 8×8 on."""

    options_type: ClassVar[type[Any]] = ConvNetOptions

    def __init__(self, options: ConvNetOptions, *, sample_shape: Sequence[int]) -> None:
        require_image("convnet", sample_shape)
        inputs, height, width = sample_shape
        factors = [2**stage for stage in range(len(options.channels))]
        sizes = [(-(-height // each), -(-width // each)) for each in factors]  # rounded up, as the convolutions do
        network = nn.ParameterList(_draw_kernels(inputs, options))
        super().__init__(options, sample_shape=sample_shape, network=network, channels=options.channels, sizes=sizes)

    def maps(self, values: Float[Tensor, "B C H W"]) -> list[Tensor]:
        """Compute the feature map a_s of every stage."""
        maps = []
        for number, kernel in enumerate(self.network.parameters()):
            stride = 2 if number >= 2 and number % 2 == 0 else 1  # first convolution of a stage, except stage 1
            values = F.leaky_relu(F.conv2d(values, kernel, stride=stride, padding=1), SLOPE)
            if number % 2:  # second convolution of a stage
                maps.append(values)
        return maps


def _draw_kernels(inputs: int, options: ConvNetOptions) -> Iterator[nn.Parameter]:
    """Draw K_1, K'_1, K_2, …, each from its own stream."""
    sizes = [inputs, *(size for size in options.channels for _ in range(2))]
    for number, (inside, outside) in enumerate(pairwise(sizes)):
        bound = math.sqrt(6 / (9 * inside * (1 + SLOPE**2)))
        uniform = torch.rand(outside, inside, 3, 3, generator=stream(options.seed, "convnet", number))
        yield nn.Parameter((2 * uniform - 1) * bound, requires_grad=False)
