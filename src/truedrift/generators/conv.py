"""ConvGenerator: upsampling blocks of convolutions from a noise vector to an image.

    w  = silu(Linear(silu(Linear([z | label | cos, sin of the strength]))) + v_label)
    h  = Linear(z), a map of widths[0] channels and about 4×4 pixels
    h ← block_0(h);   h ← block_l(h),  l = 1 … L, about twice the size each time
    x  = tanh(conv(silu(norm(h))))

Each map has half the height and width of the next one, rounded up: 4, 8, 16, 32, or 4, 7, 14, 28. Blocks are
`ResidualBlock`, in which w scales and shifts the normalized maps.

The label enters twice: as an input of w, and as a vector v_label that is added inside w. With the first alone, classes
stay mixed in short runs.
"""

from __future__ import annotations  # else the hub mixin reads the options itself

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Tensor
from truedrift.errors import UserError, require_integer
from truedrift.generators.base import Generator, require_image_shape
from truedrift.generators.layers import (
    LABEL_STD,
    Embedding,
    Linear,
    ModulatedNorm,
    ResidualBlock,
    image_convolution,
    strength_features,
)

LAYOUT = torch.channels_last
"""Memory format of the maps. Bilinear interpolation on a CPU is ten times faster if channels are last."""
SMALLEST_SIDE = 4
"""Smallest height and width of the first map, except for smaller images."""


@dataclass(frozen=True, kw_only=True)
class ConvOptions:
    """Size of a `ConvGenerator`; the defaults suit 32×32 images on a CPU."""

    kind: Literal["conv"] = "conv"
    widths: tuple[int, ...] = (192, 96, 64, 32)
    """Channels of the maps, from the smallest map to the image. Further maps have as many as the last."""
    noise: int = 64
    """Dimension of z."""
    condition: int = 256
    """Dimension of the condition w."""
    embedding: int = 32
    """Dimension of the label embedding, and number of strength features; even."""

    def __post_init__(self) -> None:
        for name, example in (("noise", 64), ("condition", 256), ("embedding", 32)):
            require_integer(name, getattr(self, name), 1, example)
        if not self.widths:
            allowed = "must hold one or more integers"
            raise UserError("is empty", allowed, "pass for example 192,96,64,32", field="widths")
        for position, width in enumerate(self.widths):
            require_integer(f"widths[{position}]", width, 1, 64)
        if self.embedding % 2:
            allowed = "must be even, half for cosines and half for sines"
            raise UserError(f"is {self.embedding}", allowed, "pass for example 32", field="embedding")


class ConvGenerator(Generator):
    """Map a noise vector [B, noise] to images [B, C, H, W] in (−1, 1).

    Args:
        options: Size of the network.
        sample_shape: (C, H, W) of any size. It suits 16 to 128 pixels.
        classes: Number of classes.
        generator: Source of the initial parameters; None: a generator with seed 0.

    Example:
        >>> generator = ConvGenerator(ConvOptions(widths=(16, 8)), sample_shape=(3, 16, 16), classes=2)
        >>> z, labels = torch.randn(5, 64), torch.tensor([0, 1, 2, 0, 1])
        >>> generator(z, labels, torch.ones(5), torch.empty(5, 0, dtype=torch.long)).shape
        torch.Size([5, 3, 16, 16])
    """

    architecture: ClassVar[str] = "conv"
    options_type: ClassVar[type[ConvOptions]] = ConvOptions

    def __init__(
        self,
        options: ConvOptions,
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(options, sample_shape=sample_shape, classes=classes, noise_shape=(options.noise,))
        require_image_shape(self.sample_shape, self.architecture)
        self.options = options
        sizes = map_sizes(self.sample_shape)
        self.grid = sizes[0]
        widths = [options.widths[min(level, len(options.widths) - 1)] for level in range(len(sizes))]
        # Condition.
        self.label = Embedding(classes + 1, options.embedding, std=1.0)
        self.hidden = Linear(options.noise + 2 * options.embedding, options.condition)
        self.condition = Linear(options.condition, options.condition)
        self.label_condition = Embedding(classes + 1, options.condition, std=LABEL_STD)
        # Maps.
        self.first = Linear(options.noise, widths[0] * math.prod(self.grid), std=options.noise**-0.5)
        self.blocks = nn.ModuleList([ResidualBlock(widths[0], widths[0], options.condition)])
        for level in range(1, len(sizes)):
            block = ResidualBlock(widths[level - 1], widths[level], options.condition, size=sizes[level])
            self.blocks.append(block)
        self.norm = ModulatedNorm(widths[-1], options.condition)
        self.last = image_convolution(widths[-1], self.sample_shape[0])
        self.initialize(generator)

    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        # Condition.
        dtype = self.label.weight.dtype
        z = z.to(dtype)
        features = strength_features(strength.to(dtype), self.options.embedding)
        hidden = F.silu(self.hidden(torch.cat((z, self.label(labels), features), -1)))
        w = F.silu(self.condition(hidden) + self.label_condition(labels))
        # Maps.
        h = self.first(z).unflatten(1, (-1, *self.grid)).contiguous(memory_format=LAYOUT)
        for block in self.blocks:
            h = block(h, w)
        return self.last(F.silu(self.norm(h, w))).tanh().contiguous()


def map_sizes(sample_shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return height and width of every map, from the smallest to the image.

    Example:
        >>> map_sizes((3, 32, 32)), map_sizes((1, 28, 56))
        ([(4, 4), (8, 8), (16, 16), (32, 32)], [(4, 7), (7, 14), (14, 28), (28, 56)])
    """
    _, height, width = sample_shape
    sizes = [(height, width)]
    while min(half := (-(-height // 2), -(-width // 2))) >= SMALLEST_SIDE:
        height, width = half
        sizes.append(half)
    return sizes[::-1]
