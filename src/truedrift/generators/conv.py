"""ConvGenerator: upsampling blocks of convolutions from a noise vector to an image.

    w  = Linear(silu(Linear([z | label | cos, sin of the strength]))) + v_label
    h  = Linear(z), a map of widths[0] channels and about 4×4 pixels
    h ← block_l(upsample(h)),  l = 1 … L, twice the size each time
    x  = tanh(conv(silu(norm(h))))

A block is skip(h) + conv(silu(F(conv(silu(F(h)))))) with 3×3 convolutions. F(h) = norm(h) (1 + a) + b is a group
normalization whose scale and shift (a, b) = Linear(w) belong to the layer.

The label enters twice: as an input of w, and as a vector v_label that is added to w. With the first alone, classes stay
mixed in short runs. Upsampling is bilinear. Transposed convolutions and pixel shuffles leave a pattern of dots.
"""

from __future__ import annotations  # else the hub mixin reads the options itself

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError, require_integer
from truedrift.generators.base import Generator
from truedrift.generators.layers import Convolution, Embedding, Linear, ModulatedNorm, strength_features

SMALLEST_GRID, LARGEST_GRID = 4, 12
"""Bounds of the height and width of the first map."""
LABEL_STD = 0.3
"""Initial standard deviation of v_label."""
OUTPUT_STD = 0.5
"""Initial standard deviation of the values before tanh: images that differ, where tanh is not flat."""


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
            raise UserError(
                "is empty", "must hold one or more integers", "pass for example 192,96,64,32", field="widths"
            )
        for position, width in enumerate(self.widths):
            require_integer(f"widths[{position}]", width, 1, 64)
        if self.embedding % 2:
            allowed = "must be even, half for cosines and half for sines"
            raise UserError(f"is {self.embedding}", allowed, "pass for example 32", field="embedding")


class ConvGenerator(Generator):
    """Map a noise vector [B, noise] to images [B, C, H, W] in (−1, 1).

    Args:
        options: Size of the network.
        sample_shape: (C, H, W). H and W are 4 to 12 times the same power of 2, for example 28, 32, 48, 64 or 128.
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
        self.options = options
        self.grid, levels = first_grid(self.sample_shape)
        widths = [options.widths[min(level, len(options.widths) - 1)] for level in range(levels + 1)]
        # Condition.
        self.label = Embedding(classes + 1, options.embedding, std=1.0)
        self.hidden = Linear(options.noise + 2 * options.embedding, options.condition)
        self.condition = Linear(options.condition, options.condition)
        self.label_condition = Embedding(classes + 1, options.condition, std=LABEL_STD)
        # Maps.
        self.first = Linear(options.noise, widths[0] * self.grid[0] * self.grid[1])
        sizes = zip([widths[0], *widths], widths, strict=False)
        self.blocks = nn.ModuleList(Block(inside, outside, options.condition) for inside, outside in sizes)
        self.norm = ModulatedNorm(widths[-1], options.condition)
        # A normalized map after silu has a mean square of about 0.36, over 9 · widths[-1] inputs.
        std = OUTPUT_STD / (0.36 * 9 * widths[-1]) ** 0.5
        self.last = Convolution(widths[-1], self.sample_shape[0], std=std)
        self.initialize(generator)

    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        # Condition.
        dtype = self.label.weight.dtype
        z = z.to(dtype)
        features = strength_features(strength.to(dtype), self.options.embedding)
        hidden = F.silu(self.hidden(torch.cat((z, self.label(labels), features), -1)))
        w = F.silu(self.condition(hidden) + self.label_condition(labels))
        # Maps; channels last is faster on a CPU and on tensor cores.
        h = self.first(z).unflatten(1, (-1, *self.grid)).contiguous(memory_format=torch.channels_last)
        for level, block in enumerate(self.blocks):
            if level > 0:
                h = F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)
            h = block(h, w)
        return self.last(F.silu(self.norm(h, w))).tanh().contiguous()


class Block(nn.Module):
    """skip(h) + conv(silu(F(conv(silu(F(h))))))."""

    def __init__(self, inside: int, outside: int, condition: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = ModulatedNorm(inside, condition), ModulatedNorm(outside, condition)
        self.conv1, self.conv2 = Convolution(inside, outside), Convolution(outside, outside)
        self.skip = Convolution(inside, outside, size=1) if inside != outside else nn.Identity()

    def forward(self, h: Float[Tensor, "B C h w"], w: Float[Tensor, "B D"]) -> Float[Tensor, "B C2 h w"]:
        inside = self.conv1(F.silu(self.norm1(h, w)))
        return self.skip(h) + self.conv2(F.silu(self.norm2(inside, w)))


def first_grid(sample_shape: Sequence[int]) -> tuple[tuple[int, int], int]:
    """Return height and width of the first map, and how often they are doubled.

    Example:
        >>> first_grid((3, 32, 32)), first_grid((1, 28, 28))
        (((4, 4), 3), ((7, 7), 2))
    """
    if len(sample_shape) != 3:
        problem = f"sample_shape is {tuple(sample_shape)}"
        raise UserError(problem, 'the generator "conv" makes images (C, H, W)', 'use the generator "mlp" for points')
    _, height, width = sample_shape
    levels = 0
    while height % 2 == width % 2 == 0 and min(height, width) >= 2 * SMALLEST_GRID:
        height, width, levels = height // 2, width // 2, levels + 1
    if max(height, width) > LARGEST_GRID:
        problem = f"sample_shape is {tuple(sample_shape)}"
        allowed = f"height and width must be at most {LARGEST_GRID} times the same power of 2"
        raise UserError(problem, allowed, "resize the images, for example to 32 or 64")
    return (height, width), levels
