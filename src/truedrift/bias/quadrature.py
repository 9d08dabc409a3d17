"""Integrals over u = log t of the transforms of a pool, in float64, with an estimate of their error.

**Pool.** s = −log w of each pool point at each query, 0 at the largest weight. `PoolCells` holds mass, Σ y and Σ ‖y‖²
at values of s: those of the points themselves, or of the cells of a histogram. One query and one pool of 10⁶ points are
8 MB. Queries are processed in blocks, so memory does not grow with them.

**Transforms.** At nodes u = log t,

    M_p(u) = t^p E[w^p f e^{−tw}],   φ(u) = E[e^{−tw}],   f = 1, y or ‖y‖²,

are sums of H_p(u − s), H_p(z) = e^{pz − e^z}. On a histogram with uniform steps the sum is a convolution. A long one is
computed as one matrix product: nodes come in blocks, and each block multiplies its window of the cells by the same
matrix. Outside of the window H_p is 0 for p ≥ 1, and e^{−e^z} is 0 or 1. log φ is computed from φ or from 1 − φ, so
that it is accurate at both ends.

**Integrals.** Σ_π coefficient · Π_s n_s(n_s−1)…(n_s−b_s+1) ∫ Π_s φ_s(u)^{n_s−b_s} Π_B M_B(u) du (`power_sums`), by the
trapezoid rule. The integrand is smooth in u and decays at both ends, so the rule converges exponentially: if a step
leaves a relative error ε, half of it leaves about ε².

**Error.** Steps are halved until the error is small enough, for each query as often as it needs. The error of the
histogram is O(h⁴); a histogram of twice the step differs from it by at least three times its error. The error of the
trapezoid rule is about the square of the change when every other node is left out. The larger of both, and rounding,
must be below max(rtol·‖value‖, 1e-13·unit) for every value of a query; unit is √(E‖y − T*‖²), or its square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.bias.power_sums import Sizes, Term, Terms
from truedrift.errors import UserError
from truedrift.kernels.kernel import LogKernel, gaussian, laplace

ELEMENTS = 1 << 23
"""Entries of s that are computed at a time."""


def minus_log_kernel(
    kernel: LogKernel, x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], tau: float
) -> Float[Tensor, "Q N"]:
    """Return −log k. The two kernels of a distance are computed in place: no gradient is needed here."""
    if kernel is laplace:
        return torch.cdist(x, pool, compute_mode="donot_use_mm_for_euclid_dist").div_(tau)
    if kernel is gaussian:
        return torch.cdist(x, pool, compute_mode="donot_use_mm_for_euclid_dist").div_(tau).square_().div_(2)
    return -kernel(x, pool, tau).to(torch.float64)


def blocks(x: Float[Tensor, "Q ..."], points: int) -> Iterator[Float[Tensor, "some ..."]]:
    """Yield the queries, as many at a time as ELEMENTS allows for that many points."""
    yield from x.split(max(1, ELEMENTS // points))


PAD = 2
"""Cells of a histogram below s = 0 and above the largest s, so that each point has four cells around it."""


def cubic_weights(f: Any) -> tuple[Any, Any, Any, Any]:
    """Return the Lagrange weights of the four cells around a point that is f ∈ [0, 1) cells beyond the second.

    f is a tensor, or a number in compiled code (`histogram`).
    """
    return (
        -f * (f - 1) * (f - 2) / 6,
        (f + 1) * (f - 1) * (f - 2) / 2,
        -(f + 1) * f * (f - 2) / 2,
        (f + 1) * f * (f - 1) / 6,
    )


@dataclass(frozen=True)
class PoolCells:
    """A pool at each query: `channels` [Q, J, D + 2] (mass, y, ‖y‖²; masses sum to 1) at places `s` [Q or 1, J]."""

    s: Tensor
    channels: Tensor
    step: float | None
    """The distance of neighbors on a uniform grid, the same for every query; None for points."""

    def centered(self, T: Float[Tensor, "Q D"]) -> PoolCells:
        """Return the cells of y − T."""
        one, y, norm = self.channels[..., :1], self.channels[..., 1:-1], self.channels[..., -1:]
        T = T.unsqueeze(-2)
        norm = norm - 2 * (y * T).sum(-1, keepdim=True) + T.square().sum(-1, keepdim=True) * one
        return PoolCells(self.s, torch.cat((one, y - T * one, norm), -1), self.step)


def target(strata: Sequence[PoolCells], shares: Sequence[float]) -> Float[Tensor, "Q D"]:
    """Return T* = Σ_s share_s Σ e^{−s} y / Σ_s share_s Σ e^{−s}, with the share of the draws from each stratum."""
    sums = [((-cells.s).exp().unsqueeze(-2) @ cells.channels).squeeze(-2) for cells in strata]
    total = torch.stack([share * each for share, each in zip(shares, sums, strict=True)]).sum(0)
    return total[:, 1:-1] / total[:, :1]


def cells_from_points(s: Float[Tensor, "Q N"], y: Float[Tensor, "N D"]) -> PoolCells:
    """Return cells that hold one point each."""
    channels = torch.cat((torch.ones_like(y[:, :1]), y, y.square().sum(-1, keepdim=True)), -1) / len(y)
    return PoolCells(s, channels.expand(len(s), -1, -1), None)


def histogram(grid: Float[Tensor, "Q J C"], step: float, origin: float = 0.0) -> PoolCells:
    """Return the cells of a uniform grid whose cell PAD is at s = origin."""
    s = step * (torch.arange(grid.shape[1], dtype=grid.dtype) - PAD) + origin
    return PoolCells(s.unsqueeze(0), grid, step)


@dataclass(frozen=True)
class QuadratureNodes:
    """Nodes u_k = first + k·step, k < count, of the trapezoid rule."""

    first: float
    step: float
    count: int

    def shifted(self, by: float) -> QuadratureNodes:
        """Return the nodes moved by `by`."""
        return QuadratureNodes(self.first + by, self.step, self.count)

    def every_other(self) -> QuadratureNodes:
        """Return half of the nodes, at twice the distance."""
        return QuadratureNodes(self.first, 2 * self.step, -(-self.count // 2))

    def values(self) -> Float[Tensor, " K"]:
        """Return u [K]."""
        return self.first + self.step * torch.arange(self.count, dtype=torch.float64)


def quadrature_nodes(largest_s: float, largest_n: int, step: float, multiple_of: float) -> QuadratureNodes:
    """Return nodes from −log n − 37, where n·t vanishes, to 5 above the largest s.

    The first node is a multiple of `multiple_of`.
    """
    first = math.floor((-math.log(largest_n) - 37) / multiple_of) * multiple_of
    return QuadratureNodes(first, step, 1 + math.ceil((largest_s + 5 - first) / step))


HIGHEST = 5.0
"""Above this z, H_p is 0 for p ≤ 10: e^{10z − e^z} = 10⁻⁴³ there."""
LOWEST = -40.0
"""Below this z, H_p is 0 for p ≥ 1, and e^{−e^z} is 1."""
NODES_PER_BLOCK = 64
_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Transforms:
    """M[p] [Q, K, D + 2] of the channels (1, y, ‖y‖²), and log φ [Q, K], at K nodes `step` apart."""

    step: float
    M: dict[int, Tensor]
    log_phi: Tensor

    def every_other(self) -> Transforms:
        """Return the transforms at every other node."""
        return Transforms(2 * self.step, {p: M[:, ::2] for p, M in self.M.items()}, self.log_phi[:, ::2])


def transforms(cells: PoolCells, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
    """Return the transforms of the cells at the nodes.

    On a grid, the nodes must be at multiples of its step from the cells.
    """
    if len(cells.s) == 1 and cells.s.numel() * nodes.count <= _ELEMENTS:
        return _shared_sums(cells.s[0], cells.channels, nodes, powers)
    if cells.step is not None:
        return _convolution(cells.channels, cells.step, float(cells.s[0, 0]), nodes, powers)
    size = max(1, _ELEMENTS // (cells.s.shape[-1] * nodes.count))
    parts = [_sums(*part, nodes, powers) for part in zip(cells.s.split(size), cells.channels.split(size), strict=True)]
    M = {p: torch.cat([part.M[p] for part in parts]) for p in powers}
    return Transforms(nodes.step, M, torch.cat([part.log_phi for part in parts]))


def _sums(s: Tensor, channels: Tensor, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
    """Sum over the cells of each query by the definition."""
    z = nodes.values()[:, None] - s.unsqueeze(-2)  # [Q, K, J]
    e_z = z.exp()
    mass = channels[..., :1]
    phi, rest = ((f @ mass).squeeze(-1) for f in ((-e_z).exp(), -torch.expm1(-e_z)))
    return Transforms(nodes.step, {p: (p * z - e_z).exp() @ channels for p in powers}, _log(phi, rest))


def _shared_sums(s: Tensor, channels: Tensor, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
    """Compute the sums of all queries in one product, for a short grid that all queries share."""
    Q, J, C = channels.shape
    z = nodes.values()[:, None] - s  # [K, J]
    e_z = z.exp()
    flat = channels.transpose(0, 1).reshape(J, Q * C)
    M = {p: ((p * z - e_z).exp() @ flat).view(-1, Q, C).transpose(0, 1) for p in powers}
    mass = channels[..., 0].mT
    phi, rest = ((f @ mass).mT for f in ((-e_z).exp(), -torch.expm1(-e_z)))
    return Transforms(nodes.step, M, _log(phi, rest))


def _convolution(grid: Tensor, step: float, first: float, nodes: QuadratureNodes, powers: Sequence[int]) -> Transforms:
    """Sum over the cells of a long grid, window by window."""
    Q, cells, channels = grid.shape
    # Cells per node, cells per block of nodes, and cells in the window of a block
    stride, before = round(nodes.step / step), round((first - nodes.first) / step)
    above, below = math.ceil(HIGHEST / step), math.ceil(-LOWEST / step)
    blocks, advance = -(-nodes.count // NODES_PER_BLOCK), NODES_PER_BLOCK * stride
    window = above + advance - stride + below + 1
    # Pad the grid, so that every block has a whole window
    start = before + above
    padded = grid.new_zeros(Q, max((blocks - 1) * advance + window, start + cells), channels)
    padded[:, start : start + cells] = grid
    windows = padded.unfold(1, window, advance)[:, :blocks]  # [Q, blocks, channels, window]
    H, H_0, rest_of_H_0 = _matrices(step, stride, above, window, tuple(powers))

    def at_nodes(values: Tensor) -> Tensor:  # [Q, blocks, nodes of a block] → [Q, K]
        return values.flatten(1, 2)[:, : nodes.count]

    # M_p, some windows at a time, because a product copies its windows
    parts = windows.split(max(1, _ELEMENTS // (Q * channels * window)), 1)
    M = torch.cat([part @ H for part in parts], 1)
    M = M.view(Q, blocks, channels, len(powers), NODES_PER_BLOCK).permute(3, 0, 1, 4, 2)
    # φ and 1 − φ, with the mass of the cells outside of the window
    mass = torch.nn.functional.pad(padded[..., 0].cumsum(-1), (1, 0))
    begin = torch.arange(blocks) * advance
    beyond = mass[:, -1:] - mass[:, begin + window]
    phi = at_nodes(windows[:, :, 0] @ H_0 + beyond.unsqueeze(-1))
    rest = at_nodes(windows[:, :, 0] @ rest_of_H_0 + mass[:, begin].unsqueeze(-1))
    return Transforms(nodes.step, {p: at_nodes(M[k]) for k, p in enumerate(powers)}, _log(phi, rest))


@lru_cache(maxsize=4)  # blocks of queries share the matrices
def _matrices(step: float, stride: int, above: int, window: int, powers: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Return the concatenated H_p of all p, H_0 and 1 − H_0, from the cells of a window to the nodes of its block."""
    z = step * (stride * torch.arange(NODES_PER_BLOCK) + above - torch.arange(window)[:, None]).double()
    e_z = z.exp()
    return torch.cat([(p * z - e_z).exp() for p in powers], -1), (-e_z).exp(), -torch.expm1(-e_z)


def _log(phi: Tensor, rest: Tensor) -> Tensor:
    """Return log φ from φ or from 1 − φ, whichever is smaller. Rounding may make the smaller one slightly negative."""
    small = phi.clamp_min(torch.finfo(phi.dtype).tiny).log()
    return torch.where(rest < 0.5, torch.log1p(-rest.clamp(0, 0.5)), small)


def integral(strata: Sequence[Transforms], terms: Terms, n: Sequence[Sizes]) -> Float[Tensor, "Q S E"]:
    """Return the sum of the integrals of all terms, for S sizes: [Q, S, D], or [Q, S, 1] for terms without a vector."""
    # Terms with as many blocks have the same power of φ: add them up first
    integrands: dict[tuple[int, ...], Tensor] = {}
    for term, coefficient in terms.items():
        b = tuple(map(len, term))
        integrand = coefficient * _product(strata, term)
        integrands[b] = integrands[b] + integrand if b in integrands else integrand
    factors = [(*draw_factors(strata, b, n), integrand) for b, integrand in integrands.items()]
    parts = [falling.unsqueeze(-1) * (phi @ integrand) for falling, phi, integrand in factors]
    return strata[0].step * torch.stack(parts).sum(0)


def draw_factors(
    strata: Sequence[Transforms], b: Sequence[int], n: Sequence[Sizes]
) -> tuple[Float[Tensor, " S"], Float[Tensor, "Q S K"]]:
    """Return Π_s n_s(n_s−1)…(n_s−b_s+1) and Π_s φ_s^{n_s−b_s} for each of the S sizes."""
    sizes = torch.tensor(n, dtype=torch.float64).unbind(-1)
    falling = [(size - k).clamp_min(0) for size, blocks in zip(sizes, b, strict=True) for k in range(blocks)]
    log_phi = [
        each.log_phi.unsqueeze(-2) * (size - blocks).clamp_min(0).unsqueeze(-1)
        for each, size, blocks in zip(strata, sizes, b, strict=True)
    ]
    return torch.stack(falling).prod(0), reduce(torch.add, log_phi).exp_()


def _product(strata: Sequence[Transforms], term: Term) -> Tensor:
    """Return Π_B M_B [Q, K, D or 1]: scalars, and a vector, the product of two vectors, or ‖y‖²."""
    factors = [(each.M[power], ys) for each, blocks in zip(strata, term, strict=True) for power, ys in blocks]
    scalars = [M[..., :1] for M, ys in factors if ys == 0]
    vectors = [M[..., 1:-1] for M, ys in factors if ys == 1]
    squares = [M[..., -1:] for M, ys in factors if ys == 2]
    if len(vectors) == 2:
        vectors = [(vectors[0] * vectors[1]).sum(-1, keepdim=True)]
    return reduce(torch.mul, [*vectors, *squares, *scalars])


LEVELS = 6
"""Steps are halved fewer times than this."""
FLOOR = 1e-13
ROOM = 1 << 24
"""Upper limit of 16 × cells of a histogram, of its entries / 8, and of points × nodes: what takes seconds."""
_EPS = torch.finfo(torch.float64).eps
_norm = partial(torch.linalg.vector_norm, dim=-1)

Solution = tuple[Tensor, Tensor]
"""A value [Q, S, D or 1], and the estimated error of its norm [Q, S]."""
AtLevel = Callable[[Tensor, int], tuple[Tensor, list[Solution], Tensor]]
"""Queries and the number of halvings → T* [Q, D], the solutions, and whether they meet the tolerance [Q]."""


class GridTooLarge(UserError):
    """Steps this small would not fit in memory."""


def require_memory(elements: float, largest_s: float) -> None:
    """Require that `elements` numbers fit in memory, for log w that ranges over `largest_s`."""
    if elements > ROOM:
        room = largest_s * ROOM / elements
        raise GridTooLarge(
            f"log w ranges over {largest_s:.3g} at a query",
            f"must be at most about {room:.3g} for this pool",
            "use a larger tau, at which more than the nearest reference has weight",
        )


def refine(solve_at: AtLevel, x: Float[Tensor, "Q D"]) -> tuple[Tensor, list[Solution]]:
    """Return T* and the solutions, with steps as small as each query needs and memory permits."""
    T_star, solutions, met = solve_at(x, 0)
    for level in range(1, LEVELS):
        left = (~met).nonzero().squeeze(-1)
        if len(left) == 0:
            break
        try:
            T_star[left], refined, met[left] = solve_at(x[left], level)
        except GridTooLarge:
            break
        for solution, better in zip(solutions, refined, strict=True):
            for old, new in zip(solution, better, strict=True):
                old[left] = new
    return T_star, solutions


def estimate_errors(
    values: Sequence[tuple[Tensor, Tensor]],
    coarser: Sequence[Sequence[Tensor]],
    unit: Tensor,
    rtol: float,
) -> tuple[list[Solution], Bool[Tensor, " Q"]]:
    """Return the values with their errors, and whether all errors of a query are small enough.

    A value comes with the same from every other node; `coarser` has all values again, once per coarser histogram. The
    unit [Q, S or 1] is the scale of the values.
    """
    errors = [_norm(value - fewer).square() / unit + 64 * _EPS * unit for value, fewer in values]
    for others in coarser:
        rows = zip(errors, values, others, strict=True)
        errors = [torch.maximum(error, _norm(value - other) / 2) for error, (value, _), other in rows]
    solutions = [(value, error) for (value, _), error in zip(values, errors, strict=True)]
    met = [(error <= torch.maximum(rtol * _norm(value), FLOOR * unit)).all(-1) for value, error in solutions]
    return solutions, torch.stack(met).all(0)
