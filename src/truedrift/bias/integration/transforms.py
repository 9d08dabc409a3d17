"""M_p(u) = t^p E[w^p f e^{−tw}] and φ(u) = E[e^{−tw}] at nodes u = log t: sums of H_p(u − s), H_p(z) = e^{pz − e^z}.

f is 1, y or ‖y‖², and s = −log w. Over a histogram with uniform steps the sum is a convolution. A long one is taken as
one matrix product: nodes come in blocks, every block sees its own window of the cells through the same matrix, and
outside of the window H_p is 0 for p ≥ 1 and e^{−e^z} is 0 or 1. log φ keeps its digits at both ends, where it is taken
from φ or from 1 − φ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from truedrift.axes import Tensor
from truedrift.bias.integration.cells import Cells, Nodes

HIGHEST = 5.0
"""Above this z, H_p is 0 for p ≤ 10: e^{10z − e^z} = 10⁻⁴³ there."""
LOWEST = -40.0
"""Below this z, H_p is 0 for p ≥ 1, and e^{−e^z} is 1."""
NODES_A_BLOCK = 64
_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Transforms:
    """M[p] [Q, K, D + 2] over channels (1, y, ‖y‖²), and log φ [Q, K], at K nodes `step` apart."""

    step: float
    M: dict[int, Tensor]
    log_phi: Tensor

    def every_other(self) -> Transforms:
        """The same at every other node."""
        return Transforms(2 * self.step, {p: M[:, ::2] for p, M in self.M.items()}, self.log_phi[:, ::2])


def transforms(cells: Cells, nodes: Nodes, powers: Sequence[int]) -> Transforms:
    """Of the cells at the nodes, which on a grid have to be at multiples of its step from the cells."""
    if len(cells.s) == 1 and cells.s.numel() * nodes.count <= _ELEMENTS:
        return _shared_sums(cells.s[0], cells.channels, nodes, powers)
    if cells.step is not None:
        return _convolution(cells.channels, cells.step, float(cells.s[0, 0]), nodes, powers)
    size = max(1, _ELEMENTS // (cells.s.shape[-1] * nodes.count))
    parts = [_sums(*some, nodes, powers) for some in zip(cells.s.split(size), cells.channels.split(size), strict=True)]
    M = {p: torch.cat([part.M[p] for part in parts]) for p in powers}
    return Transforms(nodes.step, M, torch.cat([part.log_phi for part in parts]))


def _sums(s: Tensor, channels: Tensor, nodes: Nodes, powers: Sequence[int]) -> Transforms:
    z = nodes.values()[:, None] - s.unsqueeze(-2)  # [Q, K, J]
    e_z = z.exp()
    mass = channels[..., :1]
    phi, rest = ((f @ mass).squeeze(-1) for f in ((-e_z).exp(), -torch.expm1(-e_z)))
    return Transforms(nodes.step, {p: (p * z - e_z).exp() @ channels for p in powers}, _log(phi, rest))


def _shared_sums(s: Tensor, channels: Tensor, nodes: Nodes, powers: Sequence[int]) -> Transforms:
    """For a short grid, which is the same for every query: one product for all of them."""
    Q, J, C = channels.shape
    z = nodes.values()[:, None] - s  # [K, J]
    e_z = z.exp()
    flat = channels.transpose(0, 1).reshape(J, Q * C)
    M = {p: ((p * z - e_z).exp() @ flat).view(-1, Q, C).transpose(0, 1) for p in powers}
    mass = channels[..., 0].mT
    phi, rest = ((f @ mass).mT for f in ((-e_z).exp(), -torch.expm1(-e_z)))
    return Transforms(nodes.step, M, _log(phi, rest))


def _convolution(grid: Tensor, step: float, first: float, nodes: Nodes, powers: Sequence[int]) -> Transforms:
    Q, cells, channels = grid.shape
    stride, before = round(nodes.step / step), round((first - nodes.first) / step)
    above, below = math.ceil(HIGHEST / step), math.ceil(-LOWEST / step)
    blocks, advance = -(-nodes.count // NODES_A_BLOCK), NODES_A_BLOCK * stride
    window = above + advance - stride + below + 1
    start = before + above  # where the grid begins in the padded one
    padded = grid.new_zeros(Q, max((blocks - 1) * advance + window, start + cells), channels)
    padded[:, start : start + cells] = grid
    windows = padded.unfold(1, window, advance)[:, :blocks]  # [Q, blocks, channels, window]
    H, H_0, rest_of_H_0 = _matrices(step, stride, above, window, tuple(powers))

    def at_nodes(values: Tensor) -> Tensor:  # [Q, blocks, nodes of a block] → [Q, K]
        return values.flatten(1, 2)[:, : nodes.count]

    some = windows.split(max(1, _ELEMENTS // (Q * channels * window)), 1)  # a product copies its windows
    M = torch.cat([part @ H for part in some], 1)
    M = M.view(Q, blocks, channels, len(powers), NODES_A_BLOCK).permute(3, 0, 1, 4, 2)
    mass = torch.nn.functional.pad(padded[..., 0].cumsum(-1), (1, 0))
    begin = torch.arange(blocks) * advance
    beyond = mass[:, -1:] - mass[:, begin + window]
    phi = at_nodes(windows[:, :, 0] @ H_0 + beyond.unsqueeze(-1))
    rest = at_nodes(windows[:, :, 0] @ rest_of_H_0 + mass[:, begin].unsqueeze(-1))
    return Transforms(nodes.step, {p: at_nodes(M[k]) for k, p in enumerate(powers)}, _log(phi, rest))


@lru_cache(maxsize=4)  # the same for every block of queries
def _matrices(step: float, stride: int, above: int, window: int, powers: tuple[int, ...]) -> tuple[Tensor, ...]:
    """H_p for all p side by side, H_0 and 1 − H_0, from the cells of a window to the nodes of its block."""
    z = step * (stride * torch.arange(NODES_A_BLOCK) + above - torch.arange(window)[:, None]).double()
    e_z = z.exp()
    return torch.cat([(p * z - e_z).exp() for p in powers], -1), (-e_z).exp(), -torch.expm1(-e_z)


def _log(phi: Tensor, rest: Tensor) -> Tensor:
    """log φ from φ or from 1 − φ, whichever is the smaller. At the far end rounding may leave less than nothing."""
    small = phi.clamp_min(torch.finfo(phi.dtype).tiny).log()
    return torch.where(rest < 0.5, torch.log1p(-rest.clamp(0, 0.5)), small)
