"""s = −log w of every pool point at every query, in float64: what the whole laboratory starts from.

One query and one pool of 10⁶ points are 8 MB; queries are taken in blocks, so that memory does not grow with them.

A pool as its query sees it, masses, Σ y and Σ ‖y‖² at places s = −log w, and the nodes of integrals over u = log t.

The places are the points themselves, or the cells of a histogram. s is 0 at the largest weight.

M_p(u) = t^p E[w^p f e^{−tw}] and φ(u) = E[e^{−tw}] at nodes u = log t: sums of H_p(u − s), H_p(z) = e^{pz − e^z}.

f is 1, y or ‖y‖², and s = −log w. Over a histogram with uniform steps the sum is a convolution. A long one is taken as
one matrix product: nodes come in blocks, every block sees its own window of the cells through the same matrix, and
outside of the window H_p is 0 for p ≥ 1 and e^{−e^z} is 0 or 1. log φ keeps its digits at both ends, where it is taken
from φ or from 1 − φ.

Σ_π coefficient · n(n−1)…(n−b+1) ∫ Π_B M_B(u) φ(u)^{n−b} du: the integrals of `power_sums` by the trapezoid rule.

In u = log t the integrand is smooth and decays at both ends, so that the rule converges exponentially: where a step
leaves an error ε of the scale, half of it leaves about ε².

Steps are halved until the error is small enough, for each query as often as it needs it.

The histogram's error is O(h⁴), and one of twice the step differs from it by three times as much or more. The trapezoid
rule's error is about the square of the change when every other node is left out. The larger of both, and rounding, have
to be below max(rtol·‖value‖, 1e-13·unit) for every value of a query; unit is the spread √(E‖y − T*‖²), or its square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.bias.power_sums import Blocks
from truedrift.errors import UserError
from truedrift.kernels.kernel import LogKernel, gaussian, laplace

ELEMENTS = 1 << 23
"""Of s at a time."""


def minus_log_kernel(
    kernel: LogKernel, x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], tau: float
) -> Float[Tensor, "Q N"]:
    """−log k. The two kernels of a distance need no gradient here, and so no temporaries."""
    if kernel is laplace:
        return torch.cdist(x, pool, compute_mode="donot_use_mm_for_euclid_dist").div_(tau)
    if kernel is gaussian:
        return torch.cdist(x, pool, compute_mode="donot_use_mm_for_euclid_dist").square_().div_(2 * tau**2)
    return -kernel(x, pool, tau).to(torch.float64)


def blocks(x: Float[Tensor, "Q ..."], points: int) -> Iterator[Float[Tensor, "some ..."]]:
    """The queries, as many at a time as ELEMENTS allows for that many points."""
    yield from x.split(max(1, ELEMENTS // points))


PAD = 2
"""Cells of a histogram below s = 0 and above the largest s, so that each point has its four."""


@dataclass(frozen=True)
class PoolCells:
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

    def centered(self) -> PoolCells:
        """The same for y − T*."""
        one, y, norm = self.channels[..., :1], self.channels[..., 1:-1], self.channels[..., -1:]
        T = self.target.unsqueeze(-2)
        norm = norm - 2 * (y * T).sum(-1, keepdim=True) + T.square().sum(-1, keepdim=True) * one
        return PoolCells(self.s, torch.cat((one, y - T * one, norm), -1), self.step)


def cells_from_points(s: Float[Tensor, "Q N"], y: Float[Tensor, "N D"]) -> PoolCells:
    """Every point a cell of its own."""
    channels = torch.cat((torch.ones_like(y[:, :1]), y, y.square().sum(-1, keepdim=True)), -1) / len(y)
    return PoolCells(s, channels.expand(len(s), -1, -1), None)


def histogram(grid: Float[Tensor, "Q J C"], step: float, origin: float = 0.0) -> PoolCells:
    """The cells of a uniform grid whose cell PAD is at s = origin."""
    s = step * (torch.arange(grid.shape[1], dtype=grid.dtype) - PAD) + origin
    return PoolCells(s.unsqueeze(0), grid, step)


@dataclass(frozen=True)
class QuadratureNodes:
    """u_k = first + k·step for k < count, where the trapezoid rule looks."""

    first: float
    step: float
    count: int

    def shifted(self, by: float) -> QuadratureNodes:
        """The same nodes, moved."""
        return QuadratureNodes(self.first + by, self.step, self.count)

    def every_other(self) -> QuadratureNodes:
        """Half of them, at twice the distance."""
        return QuadratureNodes(self.first, 2 * self.step, -(-self.count // 2))

    def values(self) -> Float[Tensor, " K"]:
        """[K]."""
        return self.first + self.step * torch.arange(self.count, dtype=torch.float64)


def quadrature_nodes(largest_s: float, largest_n: int, step: float, multiple_of: float) -> QuadratureNodes:
    """From −log n − 37, below which nothing is left of n·t, to 5 above the largest s; the first at such a multiple."""
    first = math.floor((-math.log(largest_n) - 37) / multiple_of) * multiple_of
    return QuadratureNodes(first, step, 1 + math.ceil((largest_s + 5 - first) / step))


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


def transforms(cells: PoolCells, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
    """Of the cells at the nodes, which on a grid have to be at multiples of its step from the cells."""
    if len(cells.s) == 1 and cells.s.numel() * nodes.count <= _ELEMENTS:
        return _shared_sums(cells.s[0], cells.channels, nodes, powers)
    if cells.step is not None:
        return _convolution(cells.channels, cells.step, float(cells.s[0, 0]), nodes, powers)
    size = max(1, _ELEMENTS // (cells.s.shape[-1] * nodes.count))
    parts = [_sums(*some, nodes, powers) for some in zip(cells.s.split(size), cells.channels.split(size), strict=True)]
    M = {p: torch.cat([part.M[p] for part in parts]) for p in powers}
    return Transforms(nodes.step, M, torch.cat([part.log_phi for part in parts]))


def _sums(s: Tensor, channels: Tensor, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
    z = nodes.values()[:, None] - s.unsqueeze(-2)  # [Q, K, J]
    e_z = z.exp()
    mass = channels[..., :1]
    phi, rest = ((f @ mass).squeeze(-1) for f in ((-e_z).exp(), -torch.expm1(-e_z)))
    return Transforms(nodes.step, {p: (p * z - e_z).exp() @ channels for p in powers}, _log(phi, rest))


def _shared_sums(s: Tensor, channels: Tensor, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
    """For a short grid, which is the same for every query: one product for all of them."""
    Q, J, C = channels.shape
    z = nodes.values()[:, None] - s  # [K, J]
    e_z = z.exp()
    flat = channels.transpose(0, 1).reshape(J, Q * C)
    M = {p: ((p * z - e_z).exp() @ flat).view(-1, Q, C).transpose(0, 1) for p in powers}
    mass = channels[..., 0].mT
    phi, rest = ((f @ mass).mT for f in ((-e_z).exp(), -torch.expm1(-e_z)))
    return Transforms(nodes.step, M, _log(phi, rest))


def _convolution(grid: Tensor, step: float, first: float, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
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


def powers(terms: dict[Blocks, float]) -> list[int]:
    """The powers of w whose transforms the terms need."""
    return sorted({block.power for blocks in terms for block in blocks})


def integral(transforms: Transforms, terms: dict[Blocks, float], n: Sequence[int]) -> Float[Tensor, "Q S E"]:
    """[Q, len(n), D], or [Q, len(n), 1] for terms without a vector."""
    integrands: dict[int, Tensor] = {}
    for blocks, coefficient in terms.items():
        b = len(blocks)
        term = coefficient * _product(transforms, blocks)
        integrands[b] = integrands[b] + term if b in integrands else term
    size = torch.tensor(n, dtype=torch.float64)
    parts = []
    for b, integrand in integrands.items():
        falling = torch.stack([(size - k).clamp_min(0) for k in range(b)]).prod(0)
        phi = (transforms.log_phi.unsqueeze(-2) * (size - b).clamp_min(0).unsqueeze(-1)).exp()  # [Q, len(n), K]
        parts.append(falling.unsqueeze(-1) * (phi @ integrand))
    return transforms.step * torch.stack(parts).sum(0)


def _product(transforms: Transforms, blocks: Blocks) -> Tensor:
    """Π_B M_B [Q, K, D or 1]: scalars, and a vector, the product of two vectors, or ‖y‖²."""
    scalars = [transforms.M[p][..., :1] for p, ys in blocks if ys == 0]
    vectors = [transforms.M[p][..., 1:-1] for p, ys in blocks if ys == 1]
    squares = [transforms.M[p][..., -1:] for p, ys in blocks if ys == 2]
    if len(vectors) == 2:
        vectors = [(vectors[0] * vectors[1]).sum(-1, keepdim=True)]
    product, *others = [*vectors, *squares, *scalars]
    for other in others:
        product = product * other
    return product


LEVELS = 6
"""How often steps may be halved."""
FLOOR = 1e-13
ROOM = 1 << 24
"""Cells of a histogram times 16, or numbers of its channels over 8, or points × nodes: what fits, and takes seconds."""
_EPS = torch.finfo(torch.float64).eps

Solution = tuple[Tensor, Tensor]
"""A value [Q, S, D or 1], and what its norm may be wrong by [Q, S]."""
AtLevel = Callable[[Tensor, int], tuple[Tensor, list[Solution], Tensor]]
"""Queries and how often steps are halved → T* [Q, ...], the solutions, and whether they meet the tolerance [Q]."""


class GridTooLarge(UserError):
    """Steps as small as that would not fit in memory."""


def require_memory(elements: float, largest_s: float) -> None:
    """`elements` numbers fit in memory, for log w that ranges over `largest_s`."""
    if elements > ROOM:
        room = largest_s * ROOM / elements
        raise GridTooLarge(
            f"log w ranges over {largest_s:.3g} at a query; allowed is about {room:.3g} for this pool; "
            "take a larger tau, at which more than the nearest reference counts"
        )


def refine(at: AtLevel, x: Float[Tensor, "Q D"]) -> tuple[Tensor, list[Solution]]:
    """T* and the solutions, each query with steps as small as it needs them and as there is room for."""
    T_star, solutions, met = at(x, 0)
    for level in range(1, LEVELS):
        left = (~met).nonzero().squeeze(-1)
        if len(left) == 0:
            break
        try:
            T_star[left], better, met[left] = at(x[left], level)
        except GridTooLarge:
            break
        for kept, new in zip(solutions, better, strict=True):
            for old, now in zip(kept, new, strict=True):
                old[left] = now
    return T_star, solutions


def estimate_errors(
    values: Sequence[tuple[Tensor, Tensor]],
    coarser: Sequence[Sequence[Tensor]],
    unit: Tensor,
    rtol: float,
) -> tuple[list[Solution], Bool[Tensor, " Q"]]:
    """Values with their errors, and whether all are met; each comes with the same from every other node.

    `coarser` has all values again, once for every coarser histogram; `unit` is [Q, S or 1].
    """
    errors = [norm(value - fewer).square() / unit + 64 * _EPS * unit for value, fewer in values]
    for others in coarser:
        errors = [
            torch.maximum(error, norm(value - other) / 2)
            for error, (value, _), other in zip(errors, values, others, strict=True)
        ]
    solutions = [(value, error) for (value, _), error in zip(values, errors, strict=True)]
    met = [(error <= torch.maximum(rtol * norm(value), FLOOR * unit)).all(-1) for value, error in solutions]
    return solutions, torch.stack(met).all(0)


def norm(vectors: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch"]:
    """‖v‖ over the last axis."""
    return torch.linalg.vector_norm(vectors, dim=-1)
