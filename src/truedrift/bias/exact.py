"""A large pool as cells: on a histogram over s, and on two of twice the step by which its error is judged.

Both of these are made from the first one, of its even and of its odd cells, because one alone may agree by chance.

The exact mean of BR-SNIS: its state's law, moved on iteration by iteration.

An iteration joins the state to n − 1 new draws, takes their centroid, and picks the next state among them with
probability w/S. The law of the state has a density r(s) with respect to the pool that depends on the weight alone,
r_0 = 1. With ν for expectations under it, H_1(z) = e^{z − e^z} and 1/S = ∫ e^{−tS} dt as in `power_sums`,

    E[T_k] = ∫ { ν[w y e^{−tw}] φ^{n−1} + (n − 1) ν[e^{−tw}] E[w y e^{−tw}] φ^{n−2} } dt,
    r_{k+1}(s) = r_k(s) ∫ H_1(u − s) φ^{n−1} du + (n − 1) ∫ H_1(u − s) ν[e^{−tw}] φ^{n−2} du.

E[T_n] − T*, tr Var[T_n] and E‖T_n − T*‖² without Monte Carlo, for n draws with replacement from a finite pool.

Each expectation is a sum of integrals over t of products of transforms of the pool (`power_sums`, `transforms`,
`integrals`). y is centered at T* before, so that the bias is the integral itself and not a difference.

A small pool is summed point by point. A large one is put on a histogram over −log w first, O(N) a query whatever the
number of n. There T* is that of the histogram, whose error would otherwise be a bias of its own.

**Error.** The histogram's is judged by two of twice the step that are made from it, of the even and of the odd cells;
the larger difference counts, because one alone may vanish by chance. The trapezoid rule's is judged by every other
node. Steps are halved until both are small (`refinement`), and what was reached is returned.

E[T] − T* without Monte Carlo for references from several pools: n_s draws with replacement from pool s.

    T* = Σ_s n_s E_s[w y] / Σ_s n_s E_s[w],   w = w_s k(x, y) in pool s,

is the limit of T as all n_s grow in proportion. Classifier-free guidance draws its negatives so: from generated
samples with w_s = 1, and from unconditional real ones with w_s = w_u. The expectations are those of `strata_sums`;
every stratum has transforms of its own, for one scale of w and at the same nodes. y is centered at the T* of the
cells, which depends on the ratios of the n_s. The error is judged as in `exact`: by coarser histograms of all strata
at once, and by every other node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import power_sums
from truedrift.bias.power_sums import STRATA_ESTIMATORS, Blocks, Term, strata_mean
from truedrift.bias.quadrature import (
    PoolCells,
    QuadratureNodes,
    Solution,
    Transforms,
    blocks,
    cells_from_points,
    estimate_errors,
    histogram,
    integral,
    minus_log_kernel,
    powers,
    quadrature_nodes,
    refine,
    require_memory,
    transforms,
)
from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import Estimator, Standard
from truedrift.centroids.resampling import BRSNIS, Jackknife
from truedrift.errors import UserError, require_choice, require_finite, require_matrices, require_temperature
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.progress import Progress, no_progress

GRID_STEP = 1 / 128
POINTS_AS_THEY_ARE = 512
"""A pool of up to this many points needs no histogram."""


def deposit_pool(
    s: Iterable[Float[Tensor, "some N"]], y: Float[Tensor, "N D"], step: float
) -> tuple[PoolCells, list[tuple[PoolCells, float]]]:
    """The cells of queries whose s comes block by block; the coarser ones, each with how far nodes have to move."""
    try:
        from truedrift.bias.histogram import coarsen, concatenate_grids, deposit  # noqa: PLC0415  numba is an extra
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"{missing.name} is not installed; a pool of more than {POINTS_AS_THEY_ARE} points needs it; "
            "run pip install 'truedrift[lab]'"
        ) from None
    grids = []
    for some in s:
        largest = float(some.max())
        require_memory(largest / step * max(16, (y.shape[1] + 2) / 8), largest)
        grids.append(deposit(some.numpy(), y.numpy(), step))
    grid = concatenate_grids(grids)
    even, odd = (torch.from_numpy(coarsen(grid, odd=odd)) for odd in (False, True))
    return histogram(torch.from_numpy(grid), step), [
        (histogram(even, 2 * step), 0.0),
        (histogram(odd, 2 * step, -step), -step),
    ]


def br_snis_mean(
    cells: PoolCells, nodes: QuadratureNodes, n: Sequence[int], *, iterations: int, burn_in: int
) -> Float[Tensor, "Q S D"]:
    """E[T] − T* for centered cells: the mean of E[T_k] over the iterations that are kept."""
    z = nodes.values()[:, None] - cells.s.unsqueeze(-2)  # [Q or 1, K, J]
    e_z = z.exp()
    H_0, H_1 = (-e_z).exp(), (z - e_z).exp()
    mass, y = cells.channels[..., :1], cells.channels[..., 1:-1]
    phi, B = H_0 @ mass, H_1 @ y  # [Q, K, 1], [Q, K, D]
    means = []
    for size in n:
        alone, joined = (nodes.step * phi ** max(size - k, 0) for k in (1, 2))
        joined = (size - 1) * joined
        kept, stays = torch.zeros_like(B[:, 0]), H_1.mT @ alone
        r = torch.ones_like(mass)
        for k in range(iterations):
            nu = H_0 @ (r * mass)
            if k >= burn_in:
                kept = kept + ((H_1 @ (r * y)) * alone + nu * B * joined).sum(-2)
            r = r * stays + H_1.mT @ (nu * joined)
        means.append(kept / (iterations - burn_in))
    return torch.stack(means, -2)


ESTIMATORS = ("standard", "abc", "abc2", "jackknife", "br-snis")
"""Those whose expectation is a finite number of integrals."""

NODE_STEP = 3 / 16
_HISTOGRAM_ELEMENTS = 1 << 23
_MOST_QUERIES = 50
"""At a time, so that progress can be told."""

_Built = tuple[PoolCells, QuadratureNodes, list[tuple[PoolCells, float]]]

Rule = Callable[[PoolCells, QuadratureNodes, tuple[int, ...]], list[tuple[Tensor, Tensor]]]
"""Centered cells, nodes and n → expectations [Q, len(n), D or 1], each with the same from every other node."""


@dataclass(frozen=True)
class Moments:
    """Expectations of one estimator at every query and every n."""

    n: tuple[int, ...]
    T_star: Tensor
    """[Q, D] the target, the centroid of the whole pool, to the accuracy of the bias."""
    bias: Tensor
    """[Q, len(n), D] E[T_n] − T*."""
    error: Tensor
    """[Q, len(n)] what ‖bias‖ may be wrong by."""
    _mse: Callable[[], Tensor]

    @cached_property
    def mse(self) -> Tensor:
        """[Q, len(n)] E‖T_n − T*‖², computed on first use; NaN for the jackknife and BR-SNIS."""
        return self._mse()

    @cached_property
    def variance(self) -> Tensor:
        """[Q, len(n)] tr Var[T_n] = mse − ‖bias‖²."""
        return self.mse - self.bias.square().sum(-1)


def exact_moments(
    x: Float[Tensor, "Q D"],
    pool: Float[Tensor, "N D"],
    *,
    tau: float,
    n: int | Sequence[int],
    estimator: str | Estimator = "abc",
    kernel: str | LogKernel = "laplace",
    rtol: float = 1e-6,
) -> Moments:
    """The bias at queries x of the centroid of n references, drawn with replacement from the pool.

    `estimator` is "standard", "abc", "abc2", "jackknife" or "br-snis" (or a `BRSNIS` with other settings), and n its
    minibatch, which for BR-SNIS is that of one iteration. Everything is computed in float64 on the CPU.
    """
    (moments,) = exact_moments_by_estimator(
        x, pool, tau=tau, n=n, estimators=(estimator,), kernel=kernel, rtol=rtol
    ).values()
    return moments


def exact_moments_by_estimator(
    x: Float[Tensor, "Q D"],
    pool: Float[Tensor, "N D"],
    *,
    tau: float,
    n: int | Sequence[int],
    estimators: Sequence[str | Estimator] = ("standard", "abc", "abc2"),
    kernel: str | LogKernel = "laplace",
    rtol: float = 1e-6,
    progress: Progress = no_progress,
) -> dict[str, Moments]:
    """The moments of several estimators by name, for one pass over the pool."""
    chosen = [_check_estimator(estimator) for estimator in estimators]
    if len({each.name for each in chosen}) < len(chosen) or not chosen:
        names = ", ".join(each.name for each in chosen) or "none"
        raise UserError(
            f"estimators are {names}", "allowed are one or more, each once", "ask for another one separately"
        )
    sizes = _check(x, pool, tau, n, rtol)
    x, pool = x.detach().to("cpu", torch.float64), pool.detach().to("cpu", torch.float64)
    problem = _Problem(x, pool, tau, log_kernel(kernel), sizes, rtol)
    T_star, solutions = problem.solve(partial(_means, chosen), progress=progress)
    return {
        each.name: Moments(sizes, T_star, bias, error, partial(_mse, problem, each.name))
        for each, (bias, error) in zip(chosen, solutions, strict=True)
    }


def _mse(problem: _Problem, name: str) -> Tensor:
    if name not in power_sums.CENTROIDS:
        return torch.full((len(problem.x), len(problem.n)), math.nan, dtype=torch.float64)
    _, ((value, _),) = problem.solve(partial(_second_moment, power_sums.second_moment(name)), second=True)
    return value.squeeze(-1)


def _second_moment(
    terms: dict[Blocks, float], cells: PoolCells, at: QuadratureNodes, n: tuple[int, ...]
) -> list[tuple[Tensor, Tensor]]:
    transformed = transforms(cells, at, powers(terms))
    return [(integral(transformed, terms, n), integral(transformed.every_other(), terms, n))]


def _means(
    estimators: Sequence[Estimator], cells: PoolCells, at: QuadratureNodes, n: tuple[int, ...]
) -> list[tuple[Tensor, Tensor]]:
    """E[T] of every estimator, from the same transforms."""
    terms = {name: power_sums.mean(name) for name in power_sums.CENTROIDS}
    needed = {p for each in estimators for p in powers(terms.get(each.name, terms["standard"]))}
    transformed = transforms(cells, at, sorted(needed))
    fewer = transformed.every_other()

    def mean(estimator: Estimator, transformed: Transforms, at: QuadratureNodes) -> Tensor:
        if isinstance(estimator, BRSNIS):
            return br_snis_mean(cells, at, n, iterations=estimator.iterations, burn_in=estimator.burn_in)
        if estimator.name == "jackknife":
            return _jackknife(transformed, n)
        return integral(transformed, terms[estimator.name], n)

    return [(mean(each, transformed, at), mean(each, fewer, at.every_other())) for each in estimators]


def _jackknife(transformed: Transforms, n: tuple[int, ...]) -> Tensor:
    """E[T_jack] = n E[T_n] − (n − 1) E[T_{n−1}]; a single reference has nothing to leave out."""
    less = tuple(max(size - 1, 1) for size in n)
    here, there = integral(transformed, power_sums.mean("standard"), n + less).chunk(2, -2)
    size = torch.tensor(n, dtype=torch.float64).unsqueeze(-1)
    return size * here - (size - 1) * there


@dataclass(frozen=True)
class _Problem:
    """Queries, a pool and n; a rule is all that is missing."""

    x: Tensor
    pool: Tensor
    tau: float
    kernel: LogKernel
    n: tuple[int, ...]
    rtol: float

    def solve(
        self, rule: Rule, *, second: bool = False, progress: Progress = no_progress
    ) -> tuple[Tensor, list[Solution]]:
        """(T* [Q, D], of each expectation of the rule its value [Q, len(n), ·] and error [Q, len(n)])."""
        parts, done = [], 0
        for x in self.x.split(self._queries_at_a_time()):
            progress("exact", done, len(self.x))
            parts.append(refine(partial(self._at, rule, second), x))
            done += len(x)
        progress("exact", done, done)
        of_rule = zip(*(solutions for _, solutions in parts), strict=True)
        joined = [(torch.cat([v for v, _ in each]), torch.cat([e for _, e in each])) for each in of_rule]
        return torch.cat([T_star for T_star, _ in parts]) + self.pool.mean(0), joined

    def _queries_at_a_time(self) -> int:
        """As many as have room for their histograms, going by the range of log w at the first."""
        (s,) = self._minus_log_weights(self.x[:1])
        cells = min(float(s.max()) / GRID_STEP + 1, 1e15)
        return max(1, min(_MOST_QUERIES, int(_HISTOGRAM_ELEMENTS / (cells * (self.pool.shape[1] + 2)))))

    def _at(self, rule: Rule, second: bool, x: Tensor, level: int) -> tuple[Tensor, list[Solution], Tensor]:
        """T* less the pool's mean, the solutions, and whether they are met, with steps halved `level` times."""
        build = self._from_points if len(self.pool) <= POINTS_AS_THEY_ARE else self._from_histogram
        cells, at, coarser_ones = build(x, 2.0**-level)
        centered = cells.centered()
        spread = centered.channels[..., -1].sum(-1, keepdim=True).clamp_min(0).sqrt()
        unit = (spread.square() if second else spread).clamp_min(torch.finfo(spread.dtype).tiny)
        coarser = [
            [value for value, _ in rule(coarse.centered(), at.shifted(shift), self.n)] for coarse, shift in coarser_ones
        ]
        solutions, met = estimate_errors(rule(centered, at, self.n), coarser, unit, self.rtol)
        return cells.target, solutions, met

    def _from_points(self, x: Tensor, scale: float) -> _Built:
        s = torch.cat(list(self._minus_log_weights(x)))
        step, largest = NODE_STEP * scale, float(s.max())
        require_memory(largest / step * len(self.pool), largest)
        return (
            cells_from_points(s, self.pool - self.pool.mean(0)),
            quadrature_nodes(largest, max(self.n), step, step),
            [],
        )

    def _from_histogram(self, x: Tensor, scale: float) -> _Built:
        step = GRID_STEP * scale
        cells, coarser = deposit_pool(self._minus_log_weights(x), self.pool - self.pool.mean(0), step)
        largest = step * cells.channels.shape[1]
        return cells, quadrature_nodes(largest, max(self.n), NODE_STEP, 2 * step), coarser

    def _minus_log_weights(self, x: Tensor) -> Iterator[Tensor]:
        """s = −log w [some queries, N], 0 at the largest weight."""
        for some in blocks(x, len(self.pool)):
            s = minus_log_kernel(self.kernel, some, self.pool, self.tau)
            least = s.amin(-1, keepdim=True)
            require_finite(**{"the kernel's logarithm over the pool": torch.cat((least, s.amax(-1, keepdim=True)))})
            yield s.sub_(least)


def _check_estimator(estimator: str | Estimator) -> Estimator:
    chosen = estimator_of(estimator)
    if type(chosen) not in (Standard, ABC, ABC2, Jackknife, BRSNIS):  # another one may have any name
        raise UserError(
            f"estimator is {chosen.name!r}, a {type(chosen).__name__}",
            f"exact are {', '.join(ESTIMATORS)}",
            "measure another one by Monte Carlo",
        )
    return chosen


def _check(x: Tensor, pool: Tensor, tau: float, n: int | Sequence[int], rtol: float) -> tuple[int, ...]:
    require_temperature(tau)
    require_matrices(x=x, pool=pool)
    require_finite(x=x, pool=pool)
    sizes = (n,) if isinstance(n, int) else tuple(n)
    if not sizes or not all(isinstance(size, int) and size >= 1 for size in sizes):
        raise UserError(f"n is {n!r}", "allowed is an integer from 1, or several", "pass for example (4, 8, 16)")
    if not 0 < rtol < 1:
        raise UserError(f"rtol is {rtol!r}", "allowed is a number between 0 and 1", "the default is 1e-6")
    return sizes


POWERS = (1, 2, 3)
"""Of w, in the blocks of ABC."""
_STRATA_HISTOGRAM_ELEMENTS = 1 << 23

Sizes = tuple[int, ...]
"""n_s of every stratum."""
_BuiltStrata = tuple[list[PoolCells], QuadratureNodes, list[tuple[list[PoolCells], float]]]
"""The cells of every stratum, the nodes, and coarser cells with how far nodes have to move."""


@dataclass(frozen=True)
class StrataBias:
    """The bias of one estimator at every query and for all sizes."""

    n: tuple[Sizes, ...]
    T_star: Tensor
    """[Q, len(n), D] the target; the same for sizes of the same ratio."""
    bias: Tensor
    """[Q, len(n), D] E[T] − T*."""
    error: Tensor
    """[Q, len(n)] what ‖bias‖ may be wrong by."""


def exact_stratified_bias(
    x: Float[Tensor, "Q D"],
    pools: Sequence[Float[Tensor, "N D"]],
    *,
    tau: float,
    n: Sequence[Sizes],
    pool_weights: Sequence[float] | None = None,
    estimators: Sequence[str] = STRATA_ESTIMATORS,
    kernel: str | LogKernel = "laplace",
    rtol: float = 1e-6,
) -> dict[str, StrataBias]:
    """The bias at queries x of the centroid of n_s references from each pool, joined, by name of the estimator.

    `n` has one size a pool, as often as wanted: ((8, 4), (16, 8)). `pool_weights` multiply the kernel, 1 for all if
    left out. Estimators are "standard", "abc" on the joined references, and "stratified-abc". float64 on the CPU.
    """
    weights = (1.0,) * len(pools) if pool_weights is None else tuple(pool_weights)
    _check_strata(x, pools, tau, n, weights, estimators, rtol)
    queries, *strata = (each.detach().to("cpu", torch.float64) for each in (x, *pools))
    problem = _StrataProblem(strata, weights, tau, log_kernel(kernel), tuple(map(tuple, n)), tuple(estimators), rtol)
    parts = [refine(problem.at, some) for some in queries.split(problem.queries_at_a_time(queries[:1]))]
    T_star = torch.cat([found for found, _ in parts]) + problem.center
    joined = [
        [torch.cat(each) for each in zip(*solutions, strict=True)]
        for solutions in zip(*(found for _, found in parts), strict=True)
    ]
    return {
        name: StrataBias(problem.n, T_star, bias, error) for name, (bias, error) in zip(estimators, joined, strict=True)
    }


@dataclass(frozen=True)
class _StrataProblem:
    pools: list[Tensor]
    weights: tuple[float, ...]
    tau: float
    kernel: LogKernel
    n: tuple[Sizes, ...]
    estimators: tuple[str, ...]
    rtol: float

    @cached_property
    def center(self) -> Float[Tensor, " D"]:
        """What y is taken from, near to all of T*, so that digits are not lost far from the origin."""
        return torch.stack([pool.mean(0) for pool in self.pools]).mean(0)

    @cached_property
    def _y(self) -> list[Tensor]:
        return [pool - self.center for pool in self.pools]

    def queries_at_a_time(self, x: Tensor) -> int:
        """As many as have room for their histograms, going by the range of log w at one query."""
        largest = max(float(s.max()) for of in self._minus_log_weights(x) for s in of)
        cells = min(largest / GRID_STEP + 1, 1e15) * len(self.pools)
        return max(1, int(_STRATA_HISTOGRAM_ELEMENTS / (cells * (x.shape[1] + 2))))

    def at(self, x: Tensor, level: int) -> tuple[Tensor, list[Solution], Tensor]:
        """T*, E[T] − T* of every estimator, and whether the tolerance is met, with steps halved `level` times."""
        few = max(map(len, self.pools)) <= POINTS_AS_THEY_ARE
        strata, at, coarser_ones = (self._from_points if few else self._from_histograms)(x, 2.0**-level)
        coarser = [[value for value, _ in self._means(cells, at.shifted(by))] for cells, by in coarser_ones]
        T_star = strata_target(strata, self.n)
        spread = torch.stack([_mean_square(cells, T_star) for cells in strata]).amax(0).sqrt()
        unit = spread.clamp_min(torch.finfo(spread.dtype).tiny)
        solutions, met = estimate_errors(self._means(strata, at), coarser, unit, self.rtol)
        return T_star, solutions, met

    def _means(self, strata: Sequence[PoolCells], at: QuadratureNodes) -> list[tuple[Tensor, Tensor]]:
        """E[T] − T* of every estimator [Q, len(n), D], and the same from every other node."""
        T_star = strata_target(strata, self.n)
        transformed = [transforms(cells, at, POWERS) for cells in strata]
        found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in self.estimators}
        for k, sizes in enumerate(self.n):
            centered = [_center(each, T_star[:, k]) for each in transformed]
            fewer = [each.every_other() for each in centered]
            for name in self.estimators:
                terms = strata_mean(name, sizes)
                found[name].append((strata_integral(centered, terms, sizes), strata_integral(fewer, terms, sizes)))
        return [(_align(value), _align(less)) for value, less in (zip(*found[name], strict=True) for name in found)]

    def _from_points(self, x: Tensor, scale: float) -> _BuiltStrata:
        s = [torch.cat(list(each)) for each in self._minus_log_weights(x)]
        step, largest = NODE_STEP * scale, max(float(of.max()) for of in s)
        require_memory(largest / step * max(map(len, self.pools)), largest)
        strata = [cells_from_points(of, y) for of, y in zip(s, self._y, strict=True)]
        return strata, self._nodes(largest, step, step), []

    def _from_histograms(self, x: Tensor, scale: float) -> _BuiltStrata:
        step = GRID_STEP * scale
        s = self._minus_log_weights(x)
        built = [deposit_pool(of, y, step) for of, y in zip(s, self._y, strict=True)]
        strata = [cells for cells, _ in built]
        coarser = [
            ([cells for cells, _ in same], same[0][1]) for same in zip(*(more for _, more in built), strict=True)
        ]
        largest = step * max(cells.channels.shape[1] for cells in strata)
        return strata, self._nodes(largest, NODE_STEP, 2 * step), coarser

    def _nodes(self, largest_s: float, step: float, multiple_of: float) -> QuadratureNodes:
        return quadrature_nodes(largest_s, max(map(sum, self.n)), step, multiple_of)

    def _minus_log_weights(self, x: Tensor) -> list[Iterator[Tensor]]:
        """s = −log w of every stratum, block by block; 0 at the largest weight that a query has in any stratum."""
        least = torch.stack([torch.cat([s.amin(-1) for s in self._raw(x, k)]) for k in range(len(self.pools))]).amin(0)
        return [self._raw(x, k, least) for k in range(len(self.pools))]

    def _raw(self, x: Tensor, k: int, less: Tensor | None = None) -> Iterator[Tensor]:
        pool = self.pools[k]
        shift = x.new_full((len(x),), math.log(self.weights[k])) + (0 if less is None else less)
        for some, by in zip(blocks(x, len(pool)), blocks(shift, len(pool)), strict=True):
            s = minus_log_kernel(self.kernel, some, pool, self.tau)
            require_finite(**{"the kernel's logarithm over a pool": torch.stack((s.amin(-1), s.amax(-1)))})
            yield s.sub_(by.unsqueeze(-1)).clamp_min_(-math.inf if less is None else 0)


def strata_target(strata: Sequence[PoolCells], n: Sequence[Sizes]) -> Float[Tensor, "Q S D"]:
    """T* = Σ_s n_s Σ e^{−s} y / Σ_s n_s Σ e^{−s} for all sizes."""
    sums = torch.stack([((-cells.s).exp().unsqueeze(-2) @ cells.channels).squeeze(-2) for cells in strata], 1)
    total = torch.tensor(n, dtype=torch.float64) @ sums  # [Q, len(n), D + 2]
    return total[..., 1:-1] / total[..., :1]


def strata_integral(strata: Sequence[Transforms], terms: dict[Term, float], n: Sizes) -> Float[Tensor, "Q D"]:
    """Σ coefficient ∫ Π_s φ_s^{n_s−b_s} Π_B M_B du by the trapezoid rule."""
    total: Tensor | float = 0.0
    for term, coefficient in terms.items():
        log_phi = sum((size - len(of)) * each.log_phi for size, of, each in zip(n, term, strata, strict=True))
        factors = [
            each.M[block.power][..., 1:-1] if block.ys else each.M[block.power][..., :1]
            for of, each in zip(term, strata, strict=True)
            for block in of
        ]
        value = coefficient * torch.as_tensor(log_phi).exp().unsqueeze(-1)
        for factor in factors:
            value = value * factor
        total = total + value.sum(-2)
    return strata[0].step * torch.as_tensor(total)


def _center(transformed: Transforms, T: Float[Tensor, "Q D"]) -> Transforms:
    """Of y − T."""
    centered = {}
    for p, M in transformed.M.items():
        one, y = M[..., :1], M[..., 1:-1]
        centered[p] = torch.cat((one, y - one * T.unsqueeze(-2), torch.zeros_like(one)), -1)
    return Transforms(transformed.step, centered, transformed.log_phi)


def _mean_square(cells: PoolCells, T_star: Float[Tensor, "Q S D"]) -> Float[Tensor, "Q S"]:
    """E_s‖y − T*‖²."""
    one, y, square = cells.channels.sum(-2).tensor_split((1, -1), -1)
    cross = (T_star * y.unsqueeze(-2)).sum(-1)
    return (square - 2 * cross + T_star.square().sum(-1) * one).clamp_min(0)


def _align(values: Sequence[Float[Tensor, "Q D"]]) -> Float[Tensor, "Q S D"]:
    return torch.stack(list(values), -2)


def _check_strata(
    x: Tensor,
    pools: Sequence[Tensor],
    tau: float,
    n: Sequence[Sizes],
    weights: tuple[float, ...],
    estimators: Sequence[str],
    rtol: float,
) -> None:
    require_temperature(tau)
    if not pools:
        raise UserError("pools is empty", "allowed is one pool or more", "pass for example (generated, unconditional)")
    for k, pool in enumerate(pools):
        require_matrices(**{"x": x, f"pools[{k}]": pool})
        require_finite(**{"x": x, f"pools[{k}]": pool})
    if not n or not all(len(sizes) == len(pools) and all(_is_size(size) for size in sizes) for sizes in n):
        raise UserError(
            f"n is {n!r}",
            f"allowed are tuples of {len(pools)} integers from 1, one a pool",
            "pass for example ((8, 4), (16, 8)) for two pools",
        )
    if len(weights) != len(pools) or not all(0 < weight < math.inf for weight in weights):
        raise UserError(
            f"pool_weights is {weights!r}",
            f"allowed are {len(pools)} positive numbers, one a pool",
            "leave out a pool that has no weight",
        )
    for name in estimators:
        require_choice("estimator", name, STRATA_ESTIMATORS)
    if not estimators or len(set(estimators)) < len(estimators):
        names = ", ".join(estimators) or "none"
        raise UserError(f"estimators are {names}", "allowed are one or more, each once", "leave them out for all")
    if not 0 < rtol < 1:
        raise UserError(f"rtol is {rtol!r}", "allowed is a number between 0 and 1", "the default is 1e-6")


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1
