"""ConvGenerator: upsampling blocks of convolutions from a noise vector to an image.

    w     = silu(Linear(silu(Linear([z | label | cos, sin of the strength]))) + v_label)
    h     = Linear(z), a map of widths[0] channels and about 4×4 pixels
    h     ← block_0(h);   h ← block_l(enlarge(h)),  l = 1 … L, about twice the size each time
    x     = tanh(conv(h))
    block   skip(h) + F(conv(F(conv(h)))),  F(h) = silu(GroupNorm(h) (1 + a) + b),  (a, b) = Linear(w)

Each map has half the height and width of the next one, rounded up: 4, 8, 16, 32, or 4, 7, 14, 28. Maps are enlarged by
repeating pixels, except for the last one, which is interpolated: convolutions remove the blocks of repeated pixels
inside the network, but not at its end.

The label enters twice: as an input of w, and as a vector v_label that is added inside w. With the first alone, classes
stay mixed in short runs.

Three choices decide how fast cars appear in short runs. KID after 330 steps of one class, one seed, is 0.08; with norms
before the convolutions instead of after them it is 0.19 to 0.22, with interpolation at every level 0.14, and with
initial weights of variance 1/inputs instead of 1/(3 · inputs) 0.14 (docs/results/trials.txt).
"""

from __future__ import annotations  # else the hub mixin reads the options itself

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.errors import require_even, require_integer, require_integers
from truedrift.generators.base import Generator, require_image_shape
from truedrift.generators.layers import (
    LABEL_STD,
    Convolution,
    Embedding,
    Linear,
    ModulatedNorm,
    enlarge,
    strength_features,
)
from truedrift.options import use_plain_integers

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
    label_vector: bool = True
    """Add the vector v_label inside w. Without it the label is only one of the inputs of w."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        for name, example in (("noise", 64), ("condition", 256), ("embedding", 32)):
            require_integer(name, getattr(self, name), 1, example)
        require_integers("widths", self.widths, 1)
        require_even("embedding", self.embedding, 32)


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
        self.hidden = _linear(options.noise + 2 * options.embedding, options.condition)
        self.condition = _linear(options.condition, options.condition)
        self.label_condition = (
            Embedding(classes + 1, options.condition, std=LABEL_STD) if options.label_vector else None
        )
        # Maps.
        self.first = _linear(options.noise, widths[0] * math.prod(self.grid))
        self.blocks = nn.ModuleList([UpsamplingBlock(widths[0], widths[0], options.condition)])
        for level in range(1, len(sizes)):
            mode = "bilinear" if level == len(sizes) - 1 else "nearest"
            block = UpsamplingBlock(widths[level - 1], widths[level], options.condition, size=sizes[level], mode=mode)
            self.blocks.append(block)
        self.last = _convolution(widths[-1], self.sample_shape[0])
        self.initialize(generator)

    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        # Condition.
        dtype = self.label.weight.dtype
        z = z.to(dtype)
        features = strength_features(strength.to(dtype), self.options.embedding)
        hidden = F.silu(self.hidden(torch.cat((z, self.label(labels), features), -1)))
        w = self.condition(hidden)
        w = F.silu(w if self.label_condition is None else w + self.label_condition(labels))
        # Maps.
        h = self.first(z).unflatten(1, (-1, *self.grid)).contiguous(memory_format=LAYOUT)
        for block in self.blocks:
            h = block(h, w)
        return self.last(h).tanh().contiguous()


class UpsamplingBlock(nn.Module):
    """skip(h) + F(conv(F(conv(h)))) of an enlarged map, with 3×3 convolutions; skip is 1×1 if the channels change.

    Args:
        inside: Channels of h.
        outside: Channels of the result.
        condition: Dimension of w.
        size: Height and width to which h is enlarged first; None keeps its size.
        mode: "nearest" or "bilinear".
    """

    def __init__(
        self, inside: int, outside: int, condition: int, *, size: tuple[int, int] | None = None, mode: str = "nearest"
    ) -> None:
        super().__init__()
        self.size, self.mode = size, mode
        self.conv1, self.conv2 = _convolution(inside, outside), _convolution(outside, outside)
        self.norm1, self.norm2 = (ModulatedNorm(outside, condition, std=_initial_std(condition)) for _ in range(2))
        self.skip = _convolution(inside, outside, size=1) if inside != outside else nn.Identity()

    def forward(self, h: Float[Tensor, "B C h w"], w: Float[Tensor, "B D"]) -> Float[Tensor, "B C2 h2 w2"]:
        skip = self.skip(h)  # before it is enlarged, where it costs a quarter; both commute
        if self.size is not None:
            h, skip = enlarge(h, self.size, self.mode), enlarge(skip, self.size, self.mode)
        h = F.silu(self.norm1(self.conv1(h), w))
        return skip + F.silu(self.norm2(self.conv2(h), w))


def _initial_std(inputs: int) -> float:
    """Return the standard deviation 1/√(3 · inputs), that of the layers of torch."""
    return (3 * inputs) ** -0.5


def _linear(inputs: int, outputs: int) -> Linear:
    return Linear(inputs, outputs, std=_initial_std(inputs))


def _convolution(inputs: int, outputs: int, *, size: int = 3) -> Convolution:
    return Convolution(inputs, outputs, size=size, std=_initial_std(inputs * size * size))


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
