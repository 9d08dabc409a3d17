"""θ̄ ← θ̄ + (1 − β)(θ − θ̄) after every step: the weights that samples are drawn from."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch

from truedrift.axes import Tensor
from truedrift.generators.base import Generator


class Average:
    """A generator whose parameters are the exponential average of another's; it starts as its copy.

    Buffers are not averaged: both have the same ones.
    """

    def __init__(self, generator: Generator, decay: float) -> None:
        self.decay = decay
        self.generator = copy.deepcopy(generator, {id(buffer): buffer for buffer in generator.buffers()})
        self.generator.requires_grad_(False).eval()
        self._parameters: list[Tensor] = list(self.generator.parameters())
        self._followed: list[Tensor] = list(generator.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """One step towards the parameters as they are."""
        torch._foreach_lerp_(self._parameters, self._followed, 1 - self.decay)

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return dict(self.generator.state_dict())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the averages of a checkpoint."""
        self.generator.load_state_dict(dict(tensors))
