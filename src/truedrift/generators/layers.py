"""The layers of the generators, and how each draws its parameters.

    Linear       xavier: U(−a, a), a = √(6 / (in + out));  or N(0, σ²);  σ = 0: zeros;  bias 0
    Embedding    N(0, σ²)
    RMSNorm      g ⊙ x / √(mean x² + 10⁻⁶),  g = 1
    strength     (cos sω_j, sin sω_j),  ω_j = 10^{−j/h},  j = 0 … h − 1

Each draws on the CPU in float32 and copies: the same numbers on every device and in every dtype. torch's own layers
draw from the global generator when they are made; these leave their memory as it is until `draw`.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor

EPSILON = 1e-6
LONGEST_PERIOD = 10.0
"""Of the strength, in units of 2π: strengths are numbers from 1 to 4."""


@runtime_checkable
class Drawn(Protocol):
    """A layer that draws its own parameters, not those of layers inside it."""

    def draw(self, generator: torch.Generator) -> None: ...


def normal_(parameter: Tensor, spread: float, generator: torch.Generator) -> None:
    """N(0, spread²), in place."""
    parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)


def xavier_(parameter: Tensor, generator: torch.Generator) -> None:
    """U(−a, a) with a = √(6 / (in + out)), in place; the weight is [out, …] and everything after is in."""
    outputs, inputs = parameter.flatten(1).shape
    bound = math.sqrt(6 / (inputs + outputs))
    parameter.copy_((2 * torch.rand(parameter.shape, generator=generator) - 1) * bound)


class Linear(nn.Linear):
    """W x + b; W is drawn by Xavier, or from N(0, spread²) if a spread is given."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, spread: float | None = None) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.spread = spread

    def reset_parameters(self) -> None:
        """Nothing yet: see `draw`."""

    def draw(self, generator: torch.Generator) -> None:
        if self.spread is None:
            xavier_(self.weight, generator)
        else:
            normal_(self.weight, self.spread, generator)
        if self.bias is not None:
            self.bias.zero_()


class PatchProjection(nn.Conv2d):
    """Every patch × patch square of an image by one linear map: a convolution whose stride is its size."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__(channels, width, kernel_size=patch, stride=patch)

    def reset_parameters(self) -> None:
        """Nothing yet: see `draw`."""

    def draw(self, generator: torch.Generator) -> None:
        xavier_(self.weight, generator)
        if self.bias is not None:
            self.bias.zero_()


class Embedding(nn.Embedding):
    """A row of the table for each id."""

    def __init__(self, entries: int, width: int, *, spread: float) -> None:
        self.spread = spread
        super().__init__(entries, width)

    def reset_parameters(self) -> None:
        """Nothing yet: see `draw`."""

    def draw(self, generator: torch.Generator) -> None:
        normal_(self.weight, self.spread, generator)


class RMSNorm(nn.Module):
    """g ⊙ x / √(mean x² + ε) over the last dimension; the mean is taken in at least float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def draw(self, generator: torch.Generator) -> None:
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
    """(cos sω_j, sin sω_j) with ω_j = 10^{−j/h} and h = size/2."""
    half = size // 2
    j = torch.arange(half, device=strength.device, dtype=strength.dtype)
    angles = strength.unsqueeze(-1) * torch.exp(-math.log(LONGEST_PERIOD) / half * j)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)
