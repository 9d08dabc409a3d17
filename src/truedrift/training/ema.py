"""θ̄ ← θ̄ + (1 − β)(θ − θ̄) after every step: the weights that samples are drawn from."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch

from truedrift.axes import Tensor
from truedrift.generators.base import Generator


class Average:
    """A generator whose parameters are the exponential average of another's; it starts as its copy."""

    def __init__(self, generator: Generator, decay: float) -> None:
        self.decay = decay
        self.generator = copy.deepcopy(generator).requires_grad_(False).eval()
        self.tensors: dict[str, Tensor] = dict(self.generator.named_parameters())

    @torch.no_grad()
    def update(self, parameters: Sequence[Tensor]) -> None:
        """One step towards the parameters, in their order."""
        torch._foreach_lerp_(list(self.tensors.values()), list(parameters), 1 - self.decay)

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the averages of a checkpoint."""
        for name, value in self.tensors.items():
            value.copy_(tensors[name])
