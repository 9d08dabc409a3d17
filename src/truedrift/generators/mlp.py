"""A residual perceptron from noise to points or small images.

    h = Linear([z | label | cos, sin of the strength]);   h ← h + Linear(silu(RMSNorm(h))), depth times
    x = Linear(RMSNorm(h)),  for images tanh of it

One matrix product a layer: on a CPU the step time of the small recipes is this network's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError, require_integer
from truedrift.generators.base import Generator
from truedrift.generators.layers import Embedding, Linear, RMSNorm, strength_features


@dataclass(frozen=True, kw_only=True)
class MLPOptions:
    """Size of the network; the defaults suit 8×8 digits."""

    kind: Literal["mlp"] = "mlp"
    width: int = 512
    depth: int = 3
    noise: int = 64
    """Dimensions of z."""
    embedding: int = 32
    """Dimensions of the label's embedding, and features of the strength."""

    def __post_init__(self) -> None:
        for name, example in (("width", 512), ("depth", 3), ("noise", 64), ("embedding", 32)):
            require_integer(name, getattr(self, name), 1, example)
        if self.embedding % 2:
            allowed = "allowed is an even number, for a cosine and a sine each"
            raise UserError(f"is {self.embedding}", allowed, "take for example 32", field="embedding")


class MLP(Generator):
    """Noise vector [B, noise] → points [B, D] or images [B, C, H, W] in (−1, 1)."""

    architecture: ClassVar[str] = "mlp"
    options_type: ClassVar[type[MLPOptions]] = MLPOptions

    def __init__(self, options: MLPOptions, *, sample_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(options, sample_shape=sample_shape, classes=classes, noise_shape=(options.noise,))
        self.options = options
        values = 1
        for size in self.sample_shape:
            values *= size
        self.label = Embedding(classes + 1, options.embedding, spread=1.0)
        self.first = Linear(options.noise + 2 * options.embedding, options.width)
        self.layers = nn.ModuleList(Layer(options.width) for _ in range(options.depth))
        self.norm = RMSNorm(options.width)
        # A normalized vector of length √width gives values of half a unit: tanh starts where it is not flat.
        self.last = Linear(options.width, values, spread=0.5 / options.width**0.5)
        self.initialize(torch.Generator().manual_seed(0))

    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        dtype = self.label.weight.dtype
        told = strength_features(strength.to(dtype), self.options.embedding)
        h = self.first(torch.cat((z.to(dtype), self.label(labels), told), dim=-1))
        for layer in self.layers:
            h = layer(h)
        x = self.last(self.norm(h)).view(len(z), *self.sample_shape)
        return x.tanh() if len(self.sample_shape) == 3 else x


class Layer(nn.Module):
    """h + Linear(silu(RMSNorm(h)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.linear = Linear(width, width)

    def forward(self, h: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        return h + self.linear(F.silu(self.norm(h)))
