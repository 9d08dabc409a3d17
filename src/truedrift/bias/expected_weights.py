"""E[γ_i], the mean weight of each reference of a pool in the centroid of n draws from it, and the bias it gives.

Every estimator here is linear in y once the draws are known, and the draws do not depend on y. Hence

    E[T_n] = Σ_i E[γ_i] y_i,   bias = Σ_i (E[γ_i] − α*_i) y_i,   α*_i = w_i / Σ_j w_j,

and E[γ_i] depends on the reference through its weight alone. The integrals of `power_sums` have one block with y in
each term, say of power p. Without the sum over the point in this block,

    N E[γ_i] = F(s_i),   F(s) = Σ_p ∫ H_p(u − s) R_p(u) du,   H_p(z) = e^{pz − e^z},   s = −log w,

where R_p collects coefficient · n(n−1)…(n−b+1) · Π (other blocks) · φ^{n−b}. This is the transpose of `exact`, which
deposits y on a grid over s and transforms it. Here only the mass is deposited. F is computed on the grid and evaluated
at the points by cubic interpolation. The cost per query is O(N) for any D. One matrix product with y then gives the
bias for all n, estimators and subsamples. On the same grid, both methods give the same numbers. As in `exact`, α* is
that of the grid, but the steps are fixed and wider. Compared with steps of a quarter of the size
(`tests/bias/test_expected_weights.py`), the error of the bias b is at most

    1e-10 √(E‖y − T*‖²) + 5 % of ‖b‖,   and at most 1e-6 √(E‖y − T*‖²):

the error of the trapezoid rule is |Γ(p + 2πi/step)| ≈ 1e-11 for any bias, and that of the grid is a fraction of
E[γ_i] − α*_i, which is small where the bias is small. A bias below FLOOR · √(E‖y − T*‖²) is not resolved.
`deviations_at_points` needs no grid. It sums over the references themselves, at a cost of O(N) per node of the
integral, and leaves only the error of the trapezoid rule with half the step, below 1e-14 √(E‖y − T*‖²).

`References` holds s [Q, N] at one temperature, and y: the features [N, D], shared by all queries, or the distances
themselves [Q, N], where Σ α d is a centroid of one dimension whose pool differs from query to query. Only this class
distinguishes the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias.power_sums import Term, Terms, mean_terms, powers
from truedrift.bias.quadrature import (
    HIGHEST,
    LOWEST,
    PAD,
    PoolCells,
    QuadratureNodes,
    Transforms,
    cubic_weights,
    draw_factors,
    histogram,
    quadrature_nodes,
    transforms,
)
from truedrift.bias.theory import abc_residual
from truedrift.kernels.weights import effective_sample_size

GRID_STEP = 1 / 16
NODE_STEP = 3 / 8
FLOOR = 1e-9
"""Biases above this fraction of √(E‖y − T*‖²) are resolved: ten times the error that does not fall with the bias."""
POINTS_AS_THEY_ARE = 512
"""Pools of up to this many references need no grid."""
LONGEST = 4096.0
"""The largest range of s on the grid."""
FARTHEST = 40.0
"""Gaps between neighboring s above this count as infinite: e^{−40}."""
_CELLS_PER_BLOCK = 96
_ELEMENTS = 1 << 25


def deviations(
    s: Float[Tensor, "Q N"], estimators: Sequence[str], n: Sequence[int], groups: Int[Tensor, " N"] | None = None
) -> Iterator[tuple[slice, Float[Tensor, "some N columns"]]]:
    """Yield E[γ] − α* for blocks of queries, from s = −log w that is 0 at the largest weight of each query.

    Columns are estimators × n. With labels 0 … G − 1 in `groups`, the pool is in turn everything but one group. Columns
    are then groups × estimators × n, and a reference has 0 where it is left out.
    """
    pools = 1 if groups is None else int(groups.max()) + 1
    Q, N = s.shape
    cells = math.ceil(float(s.max()) / GRID_STEP) + 2 * PAD + 2
    columns = len(estimators) * len(n)
    at_a_time = max(1, min(_ELEMENTS // (N * columns * pools), _ELEMENTS // (8 * cells * pools)))
    for first in range(0, Q, at_a_time):
        some = slice(first, min(first + at_a_time, Q))
        yield some, _deviations(s[some], estimators, n, groups, pools, cells)


def deviations_at_points(
    s: Float[Tensor, "Q N"], estimators: Sequence[str], n: Sequence[int]
) -> Iterator[tuple[slice, Float[Tensor, "some N columns"]]]:
    """Yield the same as `deviations` with one pool, summed over the references without a grid."""
    Q, N = s.shape
    nodes = quadrature_nodes(float(s.max()), max(n), NODE_STEP / 2, NODE_STEP / 2)
    at_a_time = max(1, _ELEMENTS // (4 * N * nodes.count))
    for first in range(0, Q, at_a_time):
        some = slice(first, min(first + at_a_time, Q))
        cells = PoolCells(s[some], torch.full_like(s[some], 1 / N).unsqueeze(-1), None)
        z = nodes.values()[:, None] - cells.s.unsqueeze(-2)  # [some, K, N]

        def add_up_nodes(R: Tensor, p: int, z: Tensor = z) -> Tensor:
            return nodes.step * (R @ (p * z - z.exp()).exp().unsqueeze(1))

        yield some, _relative_deviations(cells, nodes, estimators, n, add_up_nodes).flatten(1, 2).mT / N


def limit_range(s: Float[Tensor, "Q N"]) -> Float[Tensor, "Q N"]:
    """Return s with a range of at most LONGEST: gaps are cut to FARTHEST, and rows that are still longer are scaled."""
    if float(s.max()) <= LONGEST:
        return s
    ordered, order = s.sort(-1)
    gaps = ordered.diff(dim=-1, prepend=torch.zeros_like(ordered[:, :1])).clamp_max(FARTHEST)
    ordered = gaps.cumsum(-1)
    ordered = ordered * (LONGEST / ordered[:, -1:].clamp_min(LONGEST))
    return torch.empty_like(s).scatter_(-1, order, ordered)


def _deviations(
    s: Tensor, estimators: Sequence[str], n: Sequence[int], groups: Tensor | None, pools: int, cells: int
) -> Tensor:
    """Return E[γ] − α* [Q, N, pools × columns]."""
    Q, N = s.shape
    # Deposit the mass of the references on the grid
    position = s / GRID_STEP
    cell = position.long()
    weights = torch.stack(cubic_weights(position - cell), -1)  # [Q, N, 4]
    index = (cell + PAD - 1).unsqueeze(-1) + torch.arange(4)
    of_group = 0 if groups is None else cells * groups.unsqueeze(-1)
    mass = torch.zeros(Q, pools * cells, dtype=weights.dtype)
    mass = mass.scatter_add_(-1, (index + of_group).view(Q, -1), weights.reshape(Q, -1)).view(Q, pools, cells)
    size = torch.tensor([float(N)], dtype=weights.dtype)  # of each pool
    if groups is not None:
        mass = mass.sum(1, keepdim=True) - mass
        size = size - torch.bincount(groups, minlength=pools)
    # Compute E[γ] − α* of the cells, and interpolate it at the references
    table = _on_grid(mass / size.unsqueeze(-1), estimators, n)  # [Q, pools, columns, cells]
    table = (table / size.view(-1, 1, 1)).flatten(1, 2).mT.reshape(Q * cells, -1)
    index = (index + cells * torch.arange(Q).view(-1, 1, 1)).view(Q * N, 4)
    weights_at_points = torch.nn.functional.embedding_bag(
        index, table, per_sample_weights=weights.reshape(Q * N, 4).to(table.dtype), mode="sum"
    ).view(Q, N, pools, -1)
    if groups is not None:
        weights_at_points = weights_at_points * (groups.unsqueeze(-1) != torch.arange(pools)).unsqueeze(-1)
    return weights_at_points.flatten(2)


def _on_grid(mass: Tensor, estimators: Sequence[str], n: Sequence[int]) -> Tensor:
    """Return F(s) − e^{−s} / E[e^{−s}] of every cell [Q, pools, columns, cells], from masses [Q, pools, cells]."""
    Q, pools, cells = mass.shape
    grid = histogram(mass.reshape(Q * pools, cells, 1), GRID_STEP)
    at = quadrature_nodes(GRID_STEP * cells, max(n), NODE_STEP, NODE_STEP)
    F = _relative_deviations(grid, at, estimators, n, lambda R, p: _add_up_nodes(R, p, at, cells))
    return F.view(Q, pools, -1, cells)


def _relative_deviations(
    cells: PoolCells,
    at: QuadratureNodes,
    estimators: Sequence[str],
    n: Sequence[int],
    add_up_nodes: Callable[[Tensor, int], Tensor],
) -> Float[Tensor, "Q estimators sizes J"]:
    """Return F(s) − e^{−s} / E[e^{−s}] at every cell.

    `add_up_nodes` maps R_p at the nodes [..., K] and p to ∫ H_p(u − s) R_p(u) du at the cells [..., J].
    """
    terms = [mean_terms(name) for name in estimators]
    transformed = transforms(cells, at, sorted({p for each in terms for p in powers(each)}))
    w = (-cells.s).exp()
    F = -(w / (cells.channels.squeeze(-1) * w).sum(-1, keepdim=True))
    F = F[:, None, None].repeat(1, len(terms), len(n), 1)
    # The terms by the power of w that multiplies y
    for p in sorted({_power_of_y(term) for each in terms for term in each}):
        with_p = [{term: c for term, c in each.items() if _power_of_y(term) == p} for each in terms]
        some = [e for e, each in enumerate(with_p) if each]
        R = torch.stack([_density(transformed, with_p[e], n) for e in some], 1)
        F[:, some] += add_up_nodes(R, p)
    return F


def _power_of_y(term: Term) -> int:
    """Return the power of w in the block that holds y."""
    (p,) = (power for blocks in term for power, ys in blocks if ys == 1)
    return p


def _density(transformed: Transforms, terms: Terms, n: Sequence[int]) -> Tensor:
    """Return R_p at the nodes [·, len(n), K], from the terms in which w^p multiplies y."""
    R = torch.zeros(1, dtype=torch.float64)
    for (blocks,), coefficient in terms.items():
        falling, phi = draw_factors([transformed], [len(blocks)], [(size,) for size in n])
        others = torch.ones_like(transformed.log_phi)
        for power, ys in blocks:
            if ys == 0:
                others = others * transformed.M[power][..., 0]
        R = R + phi * (coefficient * falling).unsqueeze(-1) * others.unsqueeze(1)
    return R


def _add_up_nodes(R: Tensor, p: int, at: QuadratureNodes, cells: int) -> Tensor:
    """Return Σ_k H_p(u_k − s_j) R(u_k) · step for every cell j: cells in blocks, each with its window of the nodes."""
    # Nodes per block of cells, and nodes in the window of a block
    blocks = -(-cells // _CELLS_PER_BLOCK)
    advance = round(_CELLS_PER_BLOCK * GRID_STEP / NODE_STEP)
    below, above = math.ceil(-LOWEST / p / NODE_STEP), math.ceil((HIGHEST + PAD * GRID_STEP) / NODE_STEP)
    window = below + advance + above
    # The node at u = 0, less those below it in the first window
    start = -round(at.first / NODE_STEP) - below
    last = start + (blocks - 1) * advance + window
    left, right = max(0, -start), max(0, last - at.count)
    padded = torch.nn.functional.pad(R, (left, right))[..., start + left : last + left]
    # H_p between the nodes of a window and the cells of its block
    z = NODE_STEP * (torch.arange(window) - below).double()[:, None]
    z = z - GRID_STEP * (torch.arange(_CELLS_PER_BLOCK) - PAD)
    H = NODE_STEP * (p * z - z.exp()).exp()  # [window, cells of a block]
    rows = padded.unfold(-1, window, advance).reshape(-1, window)  # a copy, for one large product
    return (rows @ H).view(*R.shape[:-1], -1)[..., :cells]


@dataclass(frozen=True)
class References:
    """References at one temperature: `s` [Q, N], 0 at the largest weight of each query, and centered y.

    y is [N, D], or [Q, N] with `per_query`, one row per query.
    """

    s: Tensor
    y: Tensor
    per_query: bool

    @classmethod
    def from_log_weights(cls, log_w: Float[Tensor, "Q N"], y: Tensor, *, per_query: bool) -> References:
        """Build from log w, up to a constant per query; y is centered, which changes no bias."""
        s = limit_range(log_w.amax(-1, keepdim=True) - log_w)
        return cls(s, y - y.mean(-1 if per_query else 0, keepdim=True), per_query)

    @cached_property
    def alpha(self) -> Float[Tensor, "Q N"]:
        """α* of all references."""
        return (-self.s).softmax(-1)

    def n_eff(self, which: Int[Tensor, " N"]) -> Float[Tensor, " Q"]:
        """Return 1/Σα*² over the distinct references; reference i is a copy of the distinct one `which[i]`."""
        alpha = self.alpha.new_zeros(len(self.alpha), int(which.max()) + 1).index_add_(-1, which, self.alpha)
        return effective_sample_size(alpha)

    def sums(self, weights: Float[Tensor, "some N columns"], queries: slice) -> Float[Tensor, "some columns D"]:
        """Return Σ_i weights_i y_i for these queries."""
        if self.per_query:
            return weights.mT @ self.y[queries].unsqueeze(-1)
        some, N, columns = weights.shape
        rows = weights.mT.reshape(some * columns, N)  # one product that reads y once, not once per query
        return (rows @ self.y).view(some, columns, -1)

    def biases(
        self, estimators: Sequence[str], n: Sequence[int], groups: Int[Tensor, " N"] | None = None
    ) -> Float[Tensor, "Q pools estimators sizes D"]:
        """Return E[T_n] − T* with all references as the pool (pools = 1), or without each of the groups in turn."""
        blocks = deviations(self.s, estimators, n, groups)
        biases = torch.cat([self.sums(weights, queries) for queries, weights in blocks])
        return biases.view(len(biases), -1, len(estimators), len(n), biases.shape[-1])

    def expectations(self, estimators: Sequence[str], n: Sequence[int]) -> Float[Tensor, "Q estimators sizes D"]:
        """Return E[T_n] − T* as `biases` with one pool does, but without a grid if there are few references."""
        if self.s.shape[-1] > POINTS_AS_THEY_ARE:
            return self.biases(estimators, n)[:, 0]
        blocks = deviations_at_points(self.s, estimators, n)
        means = torch.cat([self.sums(weights, queries) for queries, weights in blocks])
        return means.view(len(means), len(estimators), len(n), -1)

    def centroids(self, gamma: Float[Tensor, "Q draws n"], index: Int[Tensor, "draws n"]) -> Float[Tensor, "Q draws D"]:
        """Return Σ_i γ_i y_i of minibatches that consist of the references `index`."""
        if self.per_query:
            return (gamma * self.y[:, index]).sum(-1, keepdim=True)
        return (gamma.transpose(0, 1) @ self.y[index]).transpose(0, 1)

    @cached_property
    def target(self) -> Float[Tensor, "Q D"]:
        """T* − E[y]."""
        return self.sums(self.alpha.unsqueeze(-1), slice(None)).squeeze(-2)

    @property
    def scatter(self) -> Tensor:
        """E‖y − E[y]‖², [] or [Q]."""
        return self.y.square().mean(-1) if self.per_query else self.y.square().sum(-1).mean()

    @property
    def spread(self) -> Float[Tensor, " Q"]:
        """√(E‖y − T*‖²)."""
        return (self.scatter + self.target.square().sum(-1)).sqrt()

    @property
    def relative_shift(self) -> float:
        """‖T* − E[y]‖ over √(E‖y − E[y]‖²), root mean square over queries."""
        tiny = torch.finfo(self.s.dtype).tiny
        return float((self.target.square().sum(-1) / self.scatter.clamp_min(tiny)).mean().sqrt())

    def abc_residual(self, n: int) -> Float[Tensor, "Q D"]:
        """Return the leading bias of ABC (`theory.abc_residual`), with w = N α*."""
        N = self.s.shape[-1]
        w = N * self.alpha
        m_2, m_3 = (w.pow(k).mean(-1, keepdim=True) for k in (2, 3))
        sums = self.sums(torch.stack((w.square(), w.pow(3)), -1), slice(None)) / N
        g_2, g_3 = sums[:, 0] - m_2 * self.target, sums[:, 1] - m_3 * self.target
        return abc_residual(m_2, g_2, g_3, n)
