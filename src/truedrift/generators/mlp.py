"""MLP: a residual multilayer perceptron from noise to points or small images.

    h = Linear([z | label | cos, sin of the strength]);   h ← h + Linear(silu(RMSNorm(h))), depth times
    x = Linear(RMSNorm(h)),  and its tanh for images;  Linear(h) without `final_norm`, where x has no bound

Each layer is one matrix product. On a CPU, this network takes most of the step time of the small recipes.

A continuous map of a normal vector has a connected image: it fills the gaps between clusters. With `signs` = k, the
network reads only the signs of the first k entries of z. It is then a mixture of 2ᵏ continuous maps with equal weights,
which can have gaps and sharp edges.
"""

from __future__ import annotations  # else the hub mixin reads the options itself

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError, require_even, require_integer
from truedrift.generators.base import Generator
from truedrift.generators.layers import Embedding, Linear, RMSNorm, strength_features
from truedrift.options import use_plain_integers


@dataclass(frozen=True, kw_only=True)
class MLPOptions:
    """Size of an `MLP`; the defaults suit 8×8 digits."""

    kind: Literal["mlp"] = "mlp"
    width: int = 512
    """Dimension of the hidden vector h."""
    depth: int = 3
    """Number of residual layers."""
    noise: int = 64
    """Dimension of z."""
    signs: int = 0
    """Number of entries of z of which only the sign is used."""
    embedding: int = 32
    """Dimension of the label embedding, and number of strength features; even."""
    final_norm: bool = True
    """Normalize h before the last layer, which bounds x. Without it, x is a linear map of z plus corrections, as suits
    tables with unbounded columns."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        for name, example in (("width", 512), ("depth", 3), ("noise", 64), ("embedding", 32)):
            require_integer(name, getattr(self, name), 1, example)
        require_even("embedding", self.embedding, 32)
        require_integer("signs", self.signs, 0, 6)
        if self.signs > self.noise:
            raise UserError(
                f"is {self.signs}", f"must be at most noise, {self.noise}", "pass a smaller one", field="signs"
            )


class MLP(Generator):
    """Map a noise vector [B, noise] to points [B, D] or images [B, C, H, W] in (−1, 1).

    Args:
        options: Size of the network.
        sample_shape: (D,) for points or (C, H, W) for images.
        classes: Number of classes.
        generator: Source of the initial parameters; None: a generator with seed 0.

    Example:
        >>> generator = MLP(MLPOptions(width=16), sample_shape=(2,), classes=3)
        >>> z, labels = torch.randn(5, 64), torch.tensor([0, 1, 2, 3, 3])
        >>> generator(z, labels, torch.ones(5), torch.empty(5, 0, dtype=torch.long)).shape
        torch.Size([5, 2])
    """

    architecture: ClassVar[str] = "mlp"
    options_type: ClassVar[type[MLPOptions]] = MLPOptions

    def __init__(
        self,
        options: MLPOptions,
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(options, sample_shape=sample_shape, classes=classes, noise_shape=(options.noise,))
        self.options = options
        self.label = Embedding(classes + 1, options.embedding, std=1.0)
        self.first = Linear(options.noise + 2 * options.embedding, options.width)
        self.layers = nn.ModuleList(Layer(options.width) for _ in range(options.depth))
        self.norm = RMSNorm(options.width) if options.final_norm else nn.Identity()
        # A normalized vector has length √width, so initial values have standard deviation ½; tanh is not flat there.
        self.last = Linear(options.width, math.prod(self.sample_shape), std=0.5 / options.width**0.5)
        self.initialize(generator)

    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        dtype = self.label.weight.dtype
        condition = strength_features(strength.to(dtype), self.options.embedding)
        signs = self.options.signs
        z = torch.cat((z[:, :signs].sign(), z[:, signs:]), dim=-1) if signs else z
        h = self.first(torch.cat((z.to(dtype), self.label(labels), condition), dim=-1))
        for layer in self.layers:
            h = layer(h)
        x = self.last(self.norm(h)).view(z.shape[0], *self.sample_shape)
        return x.tanh() if len(self.sample_shape) == 3 else x


class Layer(nn.Module):
    """h + Linear(silu(RMSNorm(h)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.linear = Linear(width, width)

    def forward(self, h: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        return h + self.linear(F.silu(self.norm(h)))
