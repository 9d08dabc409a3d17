"""UNetGenerator: a U-Net that maps a noise image to an image in one step, for training on a GPU.

    w       = silu(v_label + Linear(silu(Linear(cos, sin of the strength))))
    down    h ← conv(z);  per level: `blocks` residual blocks, then the mean of 2×2 pixels
    middle  block, attention, block
    up      per level: blocks + 1 residual blocks of [h | skip], then bilinear upsampling
    x       = tanh(conv(silu(norm(h))))

The maps of level l have width · multipliers[l] channels and 2^−l of the height and width of the image, rounded up. A
skip is the map from the same place on the way down. Blocks are `ResidualBlock`, in which w scales and shifts the
normalized maps. Blocks of the largest maps of at most `attention` × `attention` pixels are followed by self-attention.
The arrangement is that of Ho et al. 2020 (arXiv 2006.11239), with resampling that has no parameters.
"""

from __future__ import annotations  # else the hub mixin reads the options itself

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
    ResidualBlock,
    enlarge,
    image_convolution,
    strength_features,
)
from truedrift.options import use_plain_integers

HEAD = 64
"""Channels per attention head."""


@dataclass(frozen=True, kw_only=True)
class UNetOptions:
    """Size of a `UNetGenerator`; the defaults suit 32×32 images on a GPU."""

    kind: Literal["unet"] = "unet"
    width: int = 128
    """Channels of the maps of the first level, for multiplier 1."""
    multipliers: tuple[int, ...] = (1, 2, 2, 2)
    """Channels of the maps of every level, in multiples of `width`; the first level has the size of the image."""
    blocks: int = 2
    """Residual blocks per level on the way down; there is one more on the way up."""
    attention: int = 16
    """Side of the largest maps with self-attention."""
    condition: int = 128
    """Dimension of the condition w, and number of strength features; even."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        for name, example in (("width", 128), ("blocks", 2), ("attention", 16), ("condition", 128)):
            require_integer(name, getattr(self, name), 1, example)
        require_integers("multipliers", self.multipliers, 1)
        require_even("condition", self.condition, 128)


class UNetGenerator(Generator):
    """Map a noise image [B, C, H, W] to images [B, C, H, W] in (−1, 1).

    Args:
        options: Size of the network.
        sample_shape: (C, H, W) of any size.
        classes: Number of classes.
        generator: Source of the initial parameters; None: a generator with seed 0.

    Example:
        >>> generator = UNetGenerator(UNetOptions(width=8, multipliers=(1, 2)), sample_shape=(3, 12, 10), classes=2)
        >>> z, labels = torch.randn(5, 3, 12, 10), torch.tensor([0, 1, 2, 0, 1])
        >>> generator(z, labels, torch.ones(5), torch.empty(5, 0, dtype=torch.long)).shape
        torch.Size([5, 3, 12, 10])
    """

    architecture: ClassVar[str] = "unet"
    options_type: ClassVar[type[UNetOptions]] = UNetOptions

    def __init__(
        self,
        options: UNetOptions,
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(options, sample_shape=sample_shape, classes=classes, noise_shape=tuple(sample_shape))
        require_image_shape(self.sample_shape, self.architecture)
        self.options = options
        channels = self.sample_shape[0]
        widths = [options.width * multiplier for multiplier in options.multipliers]
        attention = attention_level(self.sample_shape, options)
        # Condition.
        self.label = Embedding(classes + 1, options.condition, std=LABEL_STD)
        self.hidden = Linear(options.condition, options.condition)
        self.condition = Linear(options.condition, options.condition)
        # Down. `skips` are the channels of the maps that the way up takes, the last one first.
        self.first = Convolution(channels, options.width)
        self.down, skips = nn.ModuleList(), [options.width]
        for level, width in enumerate(widths):
            for _ in range(options.blocks):
                self.down.append(Layer(skips[-1], width, options.condition, attention=level == attention))
                skips.append(width)
            if level < len(widths) - 1:
                skips.append(width)
        # Middle.
        self.middle = nn.ModuleList(
            Layer(widths[-1], widths[-1], options.condition, attention=attention) for attention in (True, False)
        )
        # Up.
        self.up, inside = nn.ModuleList(), widths[-1]
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(options.blocks + 1):
                self.up.append(Layer(inside + skips.pop(), width, options.condition, attention=level == attention))
                inside = width
        self.norm = ModulatedNorm(widths[0], options.condition)
        self.last = image_convolution(widths[0], channels)
        self.initialize(generator)

    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        blocks, last = self.options.blocks, len(self.options.multipliers) - 1
        # Condition.
        dtype = self.label.weight.dtype
        features = strength_features(strength.to(dtype), self.options.condition)
        w = F.silu(self.label(labels) + self.condition(F.silu(self.hidden(features))))
        # Down; channels last is faster on a CPU and on tensor cores.
        h = self.first(z.to(dtype).contiguous(memory_format=torch.channels_last))
        skips = [h]
        for index, layer in enumerate(self.down):
            h = layer(h, w)
            skips.append(h)
            if index % blocks == blocks - 1 and index // blocks < last:
                h = F.avg_pool2d(h, 2, ceil_mode=True)
                skips.append(h)
        # Middle.
        for layer in self.middle:
            h = layer(h, w)
        # Up; maps of odd size were rounded up, so the size is that of the skip.
        for layer in self.up:
            skip = skips.pop()
            if h.shape[2:] != skip.shape[2:]:
                h = enlarge(h, (skip.shape[2], skip.shape[3]))
            h = layer(torch.cat((h, skip), 1), w)
        return self.last(F.silu(self.norm(h, w))).tanh().contiguous()


class Layer(nn.Module):
    """A residual block, followed by self-attention if `attention` is set."""

    def __init__(self, inside: int, outside: int, condition: int, *, attention: bool) -> None:
        super().__init__()
        self.block = ResidualBlock(inside, outside, condition)
        self.attention = MapAttention(outside, condition) if attention else None

    def forward(self, h: Float[Tensor, "B C h w"], w: Float[Tensor, "B D"]) -> Float[Tensor, "B C2 h w"]:
        h = self.block(h, w)
        return h if self.attention is None else self.attention(h, w)


class MapAttention(nn.Module):
    """h + Linear(Attention(Linear(F(h)))) over all pixels of a map; F is a ModulatedNorm."""

    def __init__(self, channels: int, condition: int) -> None:
        super().__init__()
        self.heads = channels // HEAD if channels % HEAD == 0 else 1
        self.norm = ModulatedNorm(channels, condition)
        self.qkv = Linear(channels, 3 * channels)
        self.proj = Linear(channels, channels)

    def forward(self, h: Float[Tensor, "B C h w"], w: Float[Tensor, "B D"]) -> Float[Tensor, "B C h w"]:
        B, C, height, width = h.shape
        pixels = self.norm(h, w).permute(0, 2, 3, 1).reshape(B, height * width, C)
        q, k, v = self.qkv(pixels).view(B, -1, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, height, width, C)
        return h + self.proj(mixed).permute(0, 3, 1, 2)


def attention_level(sample_shape: tuple[int, ...], options: UNetOptions) -> int | None:
    """Return the first level whose maps have at most `attention` × `attention` pixels; None: no level.

    Example:
        >>> [attention_level((3, size, size), UNetOptions()) for size in (16, 28, 32, 64, 256)]
        [0, 1, 1, 2, None]
    """
    side = max(sample_shape[1:])
    for level in range(len(options.multipliers)):
        if side <= options.attention:
            return level
        side = -(-side // 2)
    return None
