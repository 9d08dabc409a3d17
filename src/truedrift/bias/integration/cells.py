"""A pool as its query sees it, masses, Σ y and Σ ‖y‖² at places s = −log w, and the nodes of integrals over u = log t.

The places are the points themselves, or the cells of a histogram. s is 0 at the largest weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor

PAD = 2
"""Cells of a histogram below s = 0 and above the largest s, so that each point has its four."""


@dataclass(frozen=True)
class Cells:
    """`channels` [Q, J, D + 2] (mass, y, ‖y‖², masses of a query sum to 1) at `s` [Q or 1, J]."""

    s: Tensor
    channels: Tensor
    step: float | None
    """The distance of neighbors on a uniform grid, the same for every query; None for points."""

    @property
    def target(self) -> Float[Tensor, "Q D"]:
        """T* = Σ e^{−s} y / Σ e^{−s}."""
        sums = ((-self.s).exp().unsqueeze(-2) @ self.channels).squeeze(-2)
        return sums[:, 1:-1] / sums[:, :1]

    def centered(self) -> Cells:
        """The same for y − T*."""
        one, y, norm = self.channels[..., :1], self.channels[..., 1:-1], self.channels[..., -1:]
        T = self.target.unsqueeze(-2)
        norm = norm - 2 * (y * T).sum(-1, keepdim=True) + T.square().sum(-1, keepdim=True) * one
        return Cells(self.s, torch.cat((one, y - T * one, norm), -1), self.step)


def points(s: Float[Tensor, "Q N"], y: Float[Tensor, "N D"]) -> Cells:
    """Every point a cell of its own."""
    channels = torch.cat((torch.ones_like(y[:, :1]), y, y.square().sum(-1, keepdim=True)), -1) / len(y)
    return Cells(s, channels.expand(len(s), -1, -1), None)


def histogram(grid: Float[Tensor, "Q J C"], step: float, origin: float = 0.0) -> Cells:
    """The cells of a uniform grid whose cell PAD is at s = origin."""
    s = step * (torch.arange(grid.shape[1], dtype=grid.dtype) - PAD) + origin
    return Cells(s.unsqueeze(0), grid, step)


@dataclass(frozen=True)
class Nodes:
    """u_k = first + k·step for k < count, where the trapezoid rule looks."""

    first: float
    step: float
    count: int

    def shifted(self, by: float) -> Nodes:
        """The same nodes, moved."""
        return Nodes(self.first + by, self.step, self.count)

    def every_other(self) -> Nodes:
        """Half of them, at twice the distance."""
        return Nodes(self.first, 2 * self.step, -(-self.count // 2))

    def values(self) -> Float[Tensor, " K"]:
        """[K]."""
        return self.first + self.step * torch.arange(self.count, dtype=torch.float64)


def nodes(largest_s: float, largest_n: int, step: float, multiple_of: float) -> Nodes:
    """From −log n − 37, below which nothing is left of n·t, to 5 above the largest s; the first at such a multiple."""
    first = math.floor((-math.log(largest_n) - 37) / multiple_of) * multiple_of
    return Nodes(first, step, 1 + math.ceil((largest_s + 5 - first) / step))
