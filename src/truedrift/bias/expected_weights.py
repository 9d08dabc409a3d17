"""E[γ_i], the weight that each reference of a pool has on average in the centroid of n draws from it.

Every estimator here is linear in y once the draws are known, and the draws do not look at y. Hence

    E[T_n] = Σ_i E[γ_i] y_i,   bias = Σ_i (E[γ_i] − α*_i) y_i,   α*_i = w_i / Σ_j w_j,

and E[γ_i] depends on the reference through its weight alone. The integrals of `power_sums` have one block with y in
each term, say of power p; leaving its point open,

    N E[γ_i] = F(s_i),   F(s) = Σ_p ∫ H_p(u − s) R_p(u) du,   H_p(z) = e^{pz − e^z},   s = −log w,

where R_p collects coefficient · n(n−1)…(n−b+1) · Π (other blocks) · φ^{n−b}. This is the transpose of `exact`: there y
is deposited on a grid over s and transformed; here only the mass is, F comes back on the grid, and cubic interpolation
takes it to the points. The cost per query is O(N) whatever D is, and after it one matrix product with y serves all n,
estimators and subsamples. On the same grid both give the same numbers; α* is the grid's own, as there. The steps are
fixed and wider than there. Against steps of a quarter (`tests/bias/test_expected_weights.py`), the bias b is right to

    1e-10 of the spread + 5 % of ‖b‖, and to 1e-6 of the spread:

the trapezoid rule leaves |Γ(p + 2πi/step)| ≈ 1e-11 whatever the bias is, and the grid a share of E[γ_i] − α*_i, which
is small where the bias is. Below FLOOR · spread nothing but its being below is known.

References as the queries of the gauge see them: s = −log w [Q, N] at one temperature, and the products with y.

y is either the features [N, D], the same for every query, or the distances themselves [Q, N]: Σ α d is a centroid of
one dimension whose pool differs from query to query. What is asked of y is asked here, so that nothing else needs to
know which of both it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias import power_sums
from truedrift.bias.quadrature import (
    HIGHEST,
    LOWEST,
    PAD,
    QuadratureNodes,
    Transforms,
    histogram,
    powers,
    quadrature_nodes,
    transforms,
)
from truedrift.kernels.weights import effective_sample_size

GRID_STEP = 1 / 16
NODE_STEP = 3 / 8
FLOOR = 1e-9
"""A bias of this share of the spread is resolved; ten times the error that does not fall with the bias."""
LONGEST = 4096.0
"""The largest range of s that is resolved."""
FARTHEST = 40.0
"""A gap between neighboring s that counts as infinite: e^{−40}."""
_CELLS_A_BLOCK = 96
_ELEMENTS = 1 << 25


@dataclass(frozen=True)
class Means:
    """What is asked for: the mean weights of these estimators at these n."""

    estimators: tuple[str, ...]
    n: tuple[int, ...]

    @property
    def columns(self) -> int:
        """Estimators × n."""
        return len(self.estimators) * len(self.n)


def deviations(
    s: Float[Tensor, "Q N"], means: Means, groups: Int[Tensor, " N"] | None = None
) -> Iterator[tuple[slice, Float[Tensor, "some N columns"]]]:
    """E[γ] − α* for some queries at a time: columns are estimators × n.

    With `groups` (labels 0 … G − 1 of the references) the pool is, in turn, everything but one group: columns are
    groups × estimators × n, and a reference has 0 where it is left out. `s` is 0 at a query's largest weight.
    """
    pools = 1 if groups is None else int(groups.max()) + 1
    Q, N = s.shape
    cells = math.ceil(float(s.max()) / GRID_STEP) + 2 * PAD + 2
    at_a_time = max(1, min(_ELEMENTS // (N * means.columns * pools), _ELEMENTS // (8 * cells * pools)))
    for first in range(0, Q, at_a_time):
        some = slice(first, min(first + at_a_time, Q))
        yield some, _deviations(s[some], means, groups, pools, cells)


def is_resolvable(s: Float[Tensor, "Q N"]) -> Float[Tensor, "Q N"]:
    """s with a range of at most LONGEST: gaps beyond FARTHEST closed, and a query that is still colder made warmer."""
    if float(s.max()) <= LONGEST:
        return s
    ordered, order = s.sort(-1)
    gaps = ordered.diff(dim=-1, prepend=torch.zeros_like(ordered[:, :1])).clamp_max(FARTHEST)
    ordered = gaps.cumsum(-1)
    ordered = ordered * (LONGEST / ordered[:, -1:].clamp_min(LONGEST))
    return torch.empty_like(s).scatter_(-1, order, ordered)


def _deviations(s: Tensor, means: Means, groups: Tensor | None, pools: int, cells: int) -> Tensor:
    """[Q, N, pools × columns]."""
    Q, N = s.shape
    position = s / GRID_STEP
    cell = position.long()
    weights = _cubic(position - cell)  # [Q, N, 4]
    index = (cell + PAD - 1).unsqueeze(-1) + torch.arange(4)
    mass, size = _masses(index, weights, groups, pools, cells)  # [Q, pools, cells], [pools]
    table = _on_grid(mass / size.unsqueeze(-1), means)  # [Q, pools, columns, cells]
    table = (table / size.view(-1, 1, 1)).flatten(1, 2).mT.reshape(Q * cells, -1)
    index = (index + cells * torch.arange(Q).view(-1, 1, 1)).view(Q * N, 4)
    found = torch.nn.functional.embedding_bag(
        index, table, per_sample_weights=weights.reshape(Q * N, 4).to(table.dtype), mode="sum"
    ).view(Q, N, pools, means.columns)
    if groups is not None:
        found = found * (groups.unsqueeze(-1) != torch.arange(pools)).unsqueeze(-1)
    return found.flatten(2)


def _cubic(f: Tensor) -> Tensor:
    """Lagrange weights of the four cells around a point that is f ∈ [0, 1) beyond the second."""
    return torch.stack(
        (
            -f * (f - 1) * (f - 2) / 6,
            (f + 1) * (f - 1) * (f - 2) / 2,
            -(f + 1) * f * (f - 2) / 2,
            (f + 1) * f * (f - 1) / 6,
        ),
        -1,
    )


def _masses(index: Tensor, weights: Tensor, groups: Tensor | None, pools: int, cells: int) -> tuple[Tensor, Tensor]:
    """Histograms of every pool [Q, pools, cells] and how many references each has [pools]."""
    Q, N, _ = index.shape
    of_group = 0 if groups is None else cells * groups.unsqueeze(-1)
    grid = torch.zeros(Q, pools * cells, dtype=weights.dtype)
    grid.scatter_add_(-1, (index + of_group).view(Q, -1), weights.reshape(Q, -1))
    grid = grid.view(Q, pools, cells)
    if groups is None:
        return grid, torch.tensor([float(N)], dtype=weights.dtype)
    count = torch.bincount(groups, minlength=pools).to(weights.dtype)
    return grid.sum(1, keepdim=True) - grid, N - count


def _on_grid(mass: Tensor, means: Means) -> Tensor:
    """F(s) − e^{−s} / E[e^{−s}] of every cell [Q, pools, columns, cells], from masses [Q, pools, cells]."""
    Q, pools, cells = mass.shape
    grid = histogram(mass.reshape(Q * pools, cells, 1), GRID_STEP)
    at = quadrature_nodes(GRID_STEP * cells, max(means.n), NODE_STEP, NODE_STEP)
    terms = [power_sums.mean(name) for name in means.estimators]
    transformed = transforms(grid, at, sorted({p for each in terms for p in powers(each)}))
    w = (-grid.s).exp()
    F = -(w / (grid.channels.squeeze(-1) * w).sum(-1, keepdim=True))
    F = F[:, None, None].repeat(1, len(terms), len(means.n), 1)
    for p in sorted({_power_of_y(blocks) for each in terms for blocks in each}):
        with_p = [{blocks: c for blocks, c in each.items() if _power_of_y(blocks) == p} for each in terms]
        some = [e for e, each in enumerate(with_p) if each]
        R = torch.stack([_density(transformed, with_p[e], means.n) for e in some], 1)
        F[:, some] += _spread_out(R, p, at, cells)
    return F.view(Q, pools, means.columns, cells)


def _power_of_y(blocks: power_sums.Blocks) -> int:
    """The power of w in the block that holds y."""
    (p,) = (power for power, ys in blocks if ys == 1)
    return p


def _density(transformed: Transforms, terms: dict[power_sums.Blocks, float], n: Sequence[int]) -> Tensor:
    """R_p at the nodes [·, len(n), K], from the terms whose y stands with w^p."""
    size = torch.tensor(n, dtype=torch.float64)
    R = torch.zeros(1, dtype=torch.float64)
    for blocks, coefficient in terms.items():
        b = len(blocks)
        falling = torch.stack([(size - k).clamp_min(0) for k in range(b)]).prod(0)
        others = torch.ones_like(transformed.log_phi)
        for power, ys in blocks:
            if ys == 0:
                others = others * transformed.M[power][..., 0]
        phi = (transformed.log_phi.unsqueeze(1) * (size - b).clamp_min(0).unsqueeze(-1)).exp_()
        R = R + phi * (coefficient * falling).unsqueeze(-1) * others.unsqueeze(1)
    return R


def _spread_out(R: Tensor, p: int, at: QuadratureNodes, cells: int) -> Tensor:
    """Σ_k H_p(u_k − s_j) R(u_k) · step for every cell j: cells in blocks, each with its window of the nodes."""
    blocks = -(-cells // _CELLS_A_BLOCK)
    advance = round(_CELLS_A_BLOCK * GRID_STEP / NODE_STEP)
    below, above = math.ceil(-LOWEST / p / NODE_STEP), math.ceil((HIGHEST + PAD * GRID_STEP) / NODE_STEP)
    window = below + advance + above
    start = -round(at.first / NODE_STEP) - below  # the node at u = 0, less those that the first block sees below it
    last = start + (blocks - 1) * advance + window
    left, right = max(0, -start), max(0, last - at.count)
    padded = torch.nn.functional.pad(R, (left, right))[..., start + left : last + left]
    z = NODE_STEP * (torch.arange(window) - below).double()[:, None]
    z = z - GRID_STEP * (torch.arange(_CELLS_A_BLOCK) - PAD)
    H = NODE_STEP * (p * z - z.exp()).exp()  # [window, cells of a block]
    rows = padded.unfold(-1, window, advance).reshape(-1, window)  # a copy, for one large product and no small ones
    return (rows @ H).view(*R.shape[:-1], -1)[..., :cells]


@dataclass(frozen=True)
class References:
    """`s` [Q, N], 0 at each query's largest weight, and y: [N, D], or [Q, N] where every query has its own."""

    s: Tensor
    y: Tensor
    own: bool

    @classmethod
    def seen(cls, minus_log_w: Float[Tensor, "Q N"], y: Tensor, *, own: bool) -> References:
        """From −log w up to a constant of each query; y is centered, which changes no bias."""
        s = is_resolvable(minus_log_w - minus_log_w.amin(-1, keepdim=True))
        return cls(s, y - y.mean(-1 if own else 0, keepdim=True), own)

    @cached_property
    def alpha(self) -> Float[Tensor, "Q N"]:
        """α* over all references."""
        return (-self.s).softmax(-1)

    def n_eff(self, which: Int[Tensor, " N"]) -> Float[Tensor, " Q"]:
        """1/Σα*² over the distinct references, of which reference i is `which[i]`: copies are taken together."""
        alpha = self.alpha.new_zeros(len(self.alpha), int(which.max()) + 1).index_add_(-1, which, self.alpha)
        return effective_sample_size(alpha)

    def sums(self, weights: Float[Tensor, "some N columns"], queries: slice) -> Float[Tensor, "some columns D"]:
        """Σ_i weights_i y_i of these queries."""
        if self.own:
            return weights.mT @ self.y[queries].unsqueeze(-1)
        some, N, columns = weights.shape
        rows = weights.mT.reshape(some * columns, N)  # one product that reads y once, not one for each query
        return (rows @ self.y).view(some, columns, -1)

    def biases(
        self, estimators: Sequence[str], n: Sequence[int], groups: Int[Tensor, " N"] | None = None
    ) -> Float[Tensor, "Q pools estimators sizes D"]:
        """E[T_n] − T*, exactly, with all references as the pool (pools = 1), or without one group after another."""
        means = Means(tuple(estimators), tuple(n))
        parts = [self.sums(weights, queries) for queries, weights in deviations(self.s, means, groups)]
        found = torch.cat(parts)
        return found.view(len(found), -1, len(estimators), len(n), found.shape[-1])

    @cached_property
    def target(self) -> Float[Tensor, "Q D"]:
        """T*, less the mean of y."""
        return self.sums(self.alpha.unsqueeze(-1), slice(None)).squeeze(-2)

    @property
    def scatter(self) -> Tensor:
        """E‖y − E[y]‖², [] or [Q]."""
        return self.y.square().mean(-1) if self.own else self.y.square().sum(-1).mean()

    @property
    def spread(self) -> Float[Tensor, " Q"]:
        """√(E‖y − T*‖²)."""
        return (self.scatter + self.target.square().sum(-1)).sqrt()

    @property
    def pull(self) -> float:
        """‖T* − E[y]‖ over √(E‖y − E[y]‖²), root mean square over queries."""
        tiny = torch.finfo(self.s.dtype).tiny
        return float((self.target.square().sum(-1) / self.scatter.clamp_min(tiny)).mean().sqrt())

    def abc_residual(self, n: int) -> Float[Tensor, "Q D"]:
        """(3 m_2 g_2 − 2 g_3)/n² (`theory`), with w = N α*."""
        N = self.s.shape[-1]
        w = N * self.alpha
        m_2, m_3 = (w.pow(k).mean(-1, keepdim=True) for k in (2, 3))
        sums = self.sums(torch.stack((w.square(), w.pow(3)), -1), slice(None)) / N
        g_2, g_3 = sums[:, 0] - m_2 * self.target, sums[:, 1] - m_3 * self.target
        return (3 * m_2 * g_2 - 2 * g_3) / n**2
