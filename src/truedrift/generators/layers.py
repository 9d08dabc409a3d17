"""Layers of the generators, and how each one draws its parameters.

    Linear         Xavier: U(−a, a), a = √(6 / (in + out));  or N(0, std²);  std = 0: zeros;  bias 0
    Convolution    N(0, 1/inputs), or N(0, std²);  bias 0
    ModulatedNorm  GroupNorm(h) (1 + a) + b,  (a, b) = Linear(w)
    ResidualBlock  skip(h) + conv(silu(F(conv(silu(F(h)))))),  F a ModulatedNorm,  w the condition
    Embedding      N(0, std²)
    RMSNorm        g ⊙ x / √(mean x² + 10⁻⁶),  g = 1
    strength       (cos sω_j, sin sω_j),  ω_j = 10^{−j/h},  j = 0 … h − 1
    Attention      softmax(q kᵀ/√d) v with q, k ← RoPE(RMSNorm(q)), RoPE(RMSNorm(k)), per head

Every layer draws on the CPU in float32 and copies, so the numbers are the same on every device and in every dtype.
The layers of torch draw from the global random state in their constructor; these leave their memory uninitialized until
`draw_parameters`.

RoPE rotates the pair (x_j, x_{j+d/2}) of the token at position p by the angle p·10⁴^{−2j/d} (Su et al. 2021, in the
rotate-half arrangement). Positions count all tokens, registers first.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor

EPSILON = 1e-6
GROUPS = 8
"""Largest number of groups of a group normalization."""
OUTPUT_STD = 0.6
"""Initial standard deviation of the values before tanh: images that differ, where tanh is not flat."""
SILU_MEAN_SQUARE = 0.356
"""E[silu(x)²] for x ~ N(0, 1)."""
LABEL_STD = 0.3
"""Initial standard deviation of the vector that a label adds to the condition of a convolutional generator."""
LONGEST_PERIOD = 10.0
"""Longest period of the strength features, in units of 2π; strengths are numbers from 1 to 4."""


def normal_(parameter: Tensor, std: float, generator: torch.Generator) -> None:
    """Draw from N(0, std²) in place."""
    parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)


def xavier_(parameter: Tensor, generator: torch.Generator) -> None:
    """Draw from U(−a, a) in place, a = √(6 / (in + out)), for a weight [out, …] whose other axes together are `in`."""
    outputs, inputs = parameter.flatten(1).shape
    bound = math.sqrt(6 / (inputs + outputs))
    parameter.copy_((2 * torch.rand(parameter.shape, generator=generator) - 1) * bound)


class SeededInit:
    """Mixin for a layer of torch: the weight is drawn by Xavier, or from N(0, std²) if `std` is set; the bias is 0."""

    std: float | None = None

    def reset_parameters(self) -> None:
        """Do nothing: `draw_parameters` draws them."""

    def draw_parameters(self: Any, generator: torch.Generator) -> None:
        if self.std is None:
            xavier_(self.weight, generator)
        else:
            normal_(self.weight, self.std, generator)
        if getattr(self, "bias", None) is not None:
            self.bias.zero_()


class Linear(SeededInit, nn.Linear):
    """W x + b."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, std: float | None = None) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.std = std


class PatchProjection(SeededInit, nn.Conv2d):
    """One linear map of every patch × patch square of an image: a convolution whose stride is its size."""


class Convolution(SeededInit, nn.Conv2d):
    """A convolution of odd size that keeps height and width."""

    def __init__(self, inputs: int, outputs: int, *, size: int = 3, std: float | None = None) -> None:
        super().__init__(inputs, outputs, size, padding=size // 2)
        self.std = (inputs * size * size) ** -0.5 if std is None else std


class ModulatedNorm(nn.Module):
    """norm(h) (1 + a) + b with a group normalization without parameters and (a, b) = Linear(w)."""

    def __init__(self, channels: int, condition: int, *, std: float | None = None) -> None:
        super().__init__()
        self.groups = math.gcd(channels, GROUPS)
        self.modulation = Linear(condition, 2 * channels, std=std)

    def forward(self, h: Float[Tensor, "B C h w"], w: Float[Tensor, "B D"]) -> Float[Tensor, "B C h w"]:
        a, b = self.modulation(w).unsqueeze(-1).unsqueeze(-1).chunk(2, 1)
        return torch.addcmul(b, F.group_norm(h, self.groups, eps=EPSILON), 1 + a)


class ResidualBlock(nn.Module):
    """skip(h) + conv(silu(F(conv(silu(F(h)))))) with 3×3 convolutions; skip is 1×1 if the channels change."""

    def __init__(self, inside: int, outside: int, condition: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = ModulatedNorm(inside, condition), ModulatedNorm(outside, condition)
        self.conv1, self.conv2 = Convolution(inside, outside), Convolution(outside, outside)
        self.skip = Convolution(inside, outside, size=1) if inside != outside else nn.Identity()

    def forward(self, h: Float[Tensor, "B C h w"], w: Float[Tensor, "B D"]) -> Float[Tensor, "B C2 h2 w2"]:
        h, skip = self.conv1(F.silu(self.norm1(h, w))), self.skip(h)
        return skip + self.conv2(F.silu(self.norm2(h, w)))


def enlarge(h: Float[Tensor, "B C h w"], size: tuple[int, int], mode: str = "bilinear") -> Float[Tensor, "B C h2 w2"]:
    """Interpolate a map to `size`. Transposed convolutions and pixel shuffles would leave a pattern of dots."""
    return F.interpolate(h, size, mode=mode)


def image_convolution(width: int, channels: int) -> Convolution:
    """Build the last layer of a generator: from silu(norm(h)) to values of standard deviation 0.6 before tanh.

    Different noise gives different images from the start. A constant image would have gradients of 1/√ε through
    normalization layers of an encoder.
    """
    # silu of a normalized map has a mean square of 0.36, over 9 · width inputs.
    return Convolution(width, channels, std=OUTPUT_STD / (SILU_MEAN_SQUARE * 9 * width) ** 0.5)


class Embedding(SeededInit, nn.Embedding):
    """One row of the table per id."""

    def __init__(self, entries: int, width: int, *, std: float) -> None:
        super().__init__(entries, width)
        self.std = std


class RMSNorm(nn.Module):
    """g ⊙ x / √(mean x² + ε) over the last dimension; the mean is taken in at least float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def draw_parameters(self, generator: torch.Generator) -> None:
        self.weight.fill_(1)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normalized = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        return normalized.to(x.dtype) * self.weight


class SwiGLU(nn.Module):
    """w2(silu(w1 x) ⊙ w3 x), without biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w1 = Linear(width, hidden, bias=False)
        self.w2 = Linear(hidden, width, bias=False)
        self.w3 = Linear(width, hidden, bias=False)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def strength_features(strength: Float[Tensor, " B"], size: int) -> Float[Tensor, "B size"]:
    """Compute (cos sω_j, sin sω_j) with ω_j = 10^{−j/h} and h = size/2."""
    half = size // 2
    j = torch.arange(half, device=strength.device, dtype=strength.dtype)
    angles = strength.unsqueeze(-1) * torch.exp(-math.log(LONGEST_PERIOD) / half * j)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def inverse_periods(head: int) -> Float[Tensor, " half"]:
    """Return 10⁴^{−2j/d}, j = 0 … d/2 − 1."""
    return 1e4 ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)


def rope_angles(tokens: int, head: int) -> tuple[Float[Tensor, "tokens head"], Float[Tensor, "tokens head"]]:
    """Return cos and sin of the angles of every position, both halves of the head alike, in float32 from float64."""
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), inverse_periods(head)).repeat(1, 2)
    return angles.cos().float(), angles.sin().float()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [..., tokens, head] by the angles of each token."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Self-attention over all tokens; qkv has no bias, the output projection has one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(width, 3 * width, bias=False)
        self.proj = Linear(width, width)
        self.q_norm = RMSNorm(width // heads)
        self.k_norm = RMSNorm(width // heads)

    def forward(self, x: Float[Tensor, "B tokens D"], cos: Tensor, sin: Tensor) -> Float[Tensor, "B tokens D"]:
        B, tokens, width = x.shape
        q, k, v = self.qkv(x).view(B, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q = apply_rope(self.q_norm(q), cos, sin).type_as(v)  # under autocast the norms are wider than v
        k = apply_rope(self.k_norm(k), cos, sin).type_as(v)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).reshape(B, tokens, width))


INITIAL_STD = 0.02
"""Initial standard deviation of embeddings, registers and the last layer."""
PLACE_STD = 0.1
"""Initial standard deviation of the position embeddings, below that of the noise: more makes all images look alike."""
MODULATION_STD = 0.3
"""Initial standard deviation of the contribution of a noise vector to the condition."""
COARSE = 4
"""Rows and columns of the coarse grid that a noise vector is mapped to."""


class PatchEmbedding(nn.Module):
    """Map an image to tokens, row by row."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = PatchProjection(channels, width, kernel_size=patch, stride=patch)

    def forward(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B tokens D"]:
        return self.proj(z).flatten(2).transpose(1, 2)


class NoiseEmbedding(nn.Module):
    """Map a noise vector to tokens M(z)_i + place_i; at the start, tokens of neighboring patches are similar."""

    def __init__(self, noise: int, width: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.proj = Linear(noise, COARSE * COARSE * width, std=noise**-0.5)
        self.places = Embedding(math.prod(grid), width, std=PLACE_STD)
        self.modulation = Linear(noise, width, std=MODULATION_STD * noise**-0.5)

    def forward(self, z: Float[Tensor, "B noise"]) -> Float[Tensor, "B tokens D"]:
        coarse = self.proj(z).unflatten(1, (-1, COARSE, COARSE))
        fine = F.interpolate(coarse, self.grid, mode="bilinear")
        return fine.flatten(2).transpose(1, 2) + self.places.weight
