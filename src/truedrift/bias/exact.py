"""E[T] − T*, tr Var[T] and E‖T − T*‖² without Monte Carlo, for references drawn with replacement from finite pools.

n_s references are drawn from each of one or more pools (strata) s. With w = w_s k(x, y) in pool s,

    T* = Σ_s n_s E_s[w y] / Σ_s n_s E_s[w]

is the limit of the centroid T as all n_s grow in proportion. One pool with w_s = 1 is the usual case. Classifier-free
guidance draws its negatives from two: from generated samples with w_s = 1, and from unconditional real ones with
w_s = w_u.

Each expectation is a sum of integrals over t of products of transforms of the pools (`power_sums`, `quadrature`). All
strata have one scale of w and the same nodes. y is centered at T* first, so the bias is the integral itself and not a
difference.

A small pool is summed point by point. A large one is first deposited on a histogram over −log w, at a cost of O(N) per
query, for any number of n. T* is then the centroid of the histogram, whose error would otherwise add to the bias.

**Error.** The error of a histogram is estimated by two histograms of twice the step, made from its even and from its
odd cells. The larger difference counts, because one alone may vanish by chance. The error of the trapezoid rule is
estimated from every other node. Steps are halved until both are small (`quadrature.refine`), and the error that was
reached is returned.

**BR-SNIS.** An iteration joins the state to n − 1 new draws, computes their centroid, and picks the next state among
them with probability w/S. The law of the state has a density r(s) with respect to the pool that depends on the weight
alone, r_0 = 1. With ν for expectations under it and H_p(z) = e^{pz − e^z},

    E[T_k] = ∫ { ν[w y e^{−tw}] φ^{n−1} + (n − 1) ν[e^{−tw}] E[w y e^{−tw}] φ^{n−2} } dt,
    r_{k+1}(s) = r_k(s) ∫ H_1(u − s) φ^{n−1} du + (n − 1) ∫ H_1(u − s) ν[e^{−tw}] φ^{n−2} du.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import power_sums, quadrature
from truedrift.bias.checks import is_size, read_sizes, require_distinct, require_points
from truedrift.bias.power_sums import STRATA_ESTIMATORS, Sizes, powers
from truedrift.bias.quadrature import PoolCells, QuadratureNodes, Solution, Transforms, integral, transforms
from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import Estimator, Standard
from truedrift.centroids.resampling import BRSNIS, Jackknife
from truedrift.errors import UserError, read_number, require_choice, short_repr
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.progress import Progress, no_progress
from truedrift.summary import list_numbers, summarize
from truedrift.tensor_checks import require_finite

ESTIMATORS = ("standard", "abc", "abc2", "jackknife", "br-snis")
"""The estimators whose expectation is a finite number of integrals."""
GRID_STEP = 1 / 128
NODE_STEP = 3 / 16
POINTS_AS_THEY_ARE = 512
"""Pools of up to this many points need no histogram."""
_HISTOGRAM_ELEMENTS = 1 << 23
_MOST_QUERIES = 50
"""The largest number of queries between two reports of progress."""

Strata = list[PoolCells]
Expectation = Callable[[Strata, list[Transforms], QuadratureNodes], Tensor]
"""Centered cells, their transforms at the nodes, and the nodes → an expectation [Q, len(n), D or 1]."""


@dataclass(frozen=True)
class Moments:
    """Expectations of one estimator at every query and every n."""

    n: tuple[int, ...]
    T_star: Tensor
    """[Q, D] the target, the centroid of the whole pool, to the accuracy of the bias."""
    bias: Tensor
    """[Q, len(n), D] E[T_n] − T*."""
    error: Tensor
    """[Q, len(n)] the estimated error of ‖bias‖."""
    _mse: Callable[[], Tensor]

    def __repr__(self) -> str:
        return summarize(self, f"mean ‖bias‖ {list_numbers(self.bias.norm(dim=-1).mean(0).tolist())}")

    @cached_property
    def mse(self) -> Tensor:
        """[Q, len(n)] E‖T_n − T*‖², computed on first use; NaN for the jackknife and BR-SNIS."""
        return self._mse()

    @cached_property
    def variance(self) -> Tensor:
        """[Q, len(n)] tr Var[T_n] = mse − ‖bias‖²."""
        return self.mse - self.bias.square().sum(-1)


@dataclass(frozen=True)
class StrataBias:
    """The bias of one estimator of references from several pools, at every query and for all sizes."""

    n: tuple[Sizes, ...]
    T_star: Tensor
    """[Q, len(n), D] the target, which is the same for sizes in the same ratio."""
    bias: Tensor
    """[Q, len(n), D] E[T] − T*."""
    error: Tensor
    """[Q, len(n)] the estimated error of ‖bias‖."""

    def __repr__(self) -> str:
        return summarize(self, f"mean ‖bias‖ {list_numbers(self.bias.norm(dim=-1).mean(0).tolist())}")


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
    """Compute the exact bias, variance and mean square error of a centroid of n references.

    The references are drawn with replacement from the pool. Everything is computed in float64 on the CPU.

    Args:
        x: Queries [Q, D].
        pool: The pool [N, D] that references are drawn from.
        tau: The temperature of the kernel.
        n: The number of references per centroid, or several such numbers. For BR-SNIS, the number per iteration.
        estimator: `"standard"`, `"abc"`, `"abc2"`, `"jackknife"`, `"br-snis"`, or a `BRSNIS` with other settings.
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k.
        rtol: The relative tolerance of ‖bias‖.

    Returns:
        The moments at every query and every n.

    Raises:
        UserError: If an argument is not valid, or τ is so small that the integrals do not fit in memory.

    Example:
        >>> x, pool = torch.zeros(1, 1), torch.tensor([[0.0], [1.0]])
        >>> moments = exact_moments(x, pool, tau=1.0, n=(1, 2), estimator="standard")
        >>> [round(b, 4) for b in moments.bias.flatten().tolist()]
        [0.2311, 0.1155]
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
    """Compute the exact moments of several estimators with one pass over the pool.

    Args:
        x: Queries [Q, D].
        pool: The pool [N, D] that references are drawn from.
        tau: The temperature of the kernel.
        n: The number of references per centroid, or several such numbers.
        estimators: Estimators with different names, each as in `exact_moments`.
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k.
        rtol: The relative tolerance of ‖bias‖.
        progress: Called with the number of queries that are done.

    Returns:
        The moments of each estimator, by its name.

    Raises:
        UserError: If an argument is not valid, or τ is so small that the integrals do not fit in memory.

    Example:
        >>> x, pool = torch.zeros(1, 1), torch.tensor([[0.0], [1.0]])
        >>> moments = exact_moments_by_estimator(x, pool, tau=1.0, n=8, estimators=("standard", "abc"))
        >>> {name: round(float(each.bias), 4) for name, each in moments.items()}
        {'standard': 0.0246, 'abc': 0.002}
    """
    # Check the arguments
    chosen = [_exact_estimator(estimator) for estimator in estimators]
    require_distinct([each.name for each in chosen])
    _require_tolerance(rtol)
    require_points(tau, x=x, pool=pool)
    sizes = read_sizes(n)
    # Compute all means from the same transforms
    problem = _Problem(x, [pool], (1.0,), tau, kernel, [(size,) for size in sizes], rtol)
    names = {each.name if each.name in power_sums.CENTROIDS else "standard" for each in chosen}
    needed = sorted({p for name in names for p in powers(power_sums.mean_terms(name))})
    T_star, solutions = problem.solve([partial(_mean, each, sizes) for each in chosen], needed, progress=progress)
    return {
        each.name: Moments(sizes, T_star, bias, error, partial(_mse, problem, each.name))
        for each, (bias, error) in zip(chosen, solutions, strict=True)
    }


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
    """Compute the exact bias of the centroid of n_s references from each pool s.

    Everything is computed in float64 on the CPU.

    Args:
        x: Queries.
        pools: The pools that references are drawn from.
        tau: The temperature of the kernel.
        n: Tuples of one size per pool: ((8, 4), (16, 8)).
        pool_weights: Factors of the kernel, one per pool; 1 by default.
        estimators: `"standard"`, `"abc"` (which does not distinguish the pools) and `"stratified-abc"`.
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k.
        rtol: The relative tolerance of ‖bias‖.

    Returns:
        The bias of each estimator, by its name.

    Raises:
        UserError: If an argument is not valid, or τ is so small that the integrals do not fit in memory.

    Example:
        >>> x, pools = torch.zeros(1, 1), [torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0]])]
        >>> found = exact_stratified_bias(x, pools, tau=1.0, n=((2, 1), (4, 2)))
        >>> [round(b, 4) for b in found["stratified-abc"].bias.flatten().tolist()]
        [0.0636, 0.012]
    """
    # Check the arguments
    weights = (1.0,) * len(pools) if pool_weights is None else tuple(pool_weights)
    _require_tolerance(rtol)
    if not pools:
        fix = "pass for example (generated, unconditional)"
        raise UserError("is empty", "must have one pool or more", fix, field="pools")
    for k, pool in enumerate(pools):
        require_points(tau, **{"x": x, f"pools[{k}]": pool})
    if not n or not all(len(size) == len(pools) and all(map(is_size, size)) for size in n):
        allowed = f"must be tuples of {len(pools)} integers ≥ 1, one per pool"
        raise UserError(f"is {n!r}", allowed, "pass for example ((8, 4), (16, 8)) for two pools", field="n")
    if len(weights) != len(pools) or not all(0 < read_number(weight) < math.inf for weight in weights):
        allowed = f"must be {len(pools)} positive numbers, one per pool"
        raise UserError(f"is {weights!r}", allowed, "leave out pools of weight 0", field="pool_weights")
    for name in estimators:
        require_choice("estimator", name, STRATA_ESTIMATORS)
    require_distinct(estimators)
    sizes = tuple(map(tuple, n))
    # Sizes in the same ratio have the same T* and are solved together
    by_ratio: dict[Sizes, list[int]] = {}
    for k, size in enumerate(sizes):
        by_ratio.setdefault(_ratio(size), []).append(k)
    shape = (len(x), len(sizes), x.shape[1])
    T_star, biases = torch.empty(shape, dtype=torch.float64), torch.empty(len(estimators), *shape, dtype=torch.float64)
    errors = torch.empty(len(estimators), *shape[:2], dtype=torch.float64)
    for members in by_ratio.values():
        some = [sizes[k] for k in members]
        problem = _Problem(x, pools, weights, tau, kernel, some, rtol)
        needed = powers(power_sums.mean_terms("stratified-abc", some[0]))
        shared_target, solutions = problem.solve([partial(_stratified_mean, name, some) for name in estimators], needed)
        T_star[:, members] = shared_target.unsqueeze(1)
        for e, (bias, error) in enumerate(solutions):
            biases[e][:, members], errors[e][:, members] = bias, error
    return {name: StrataBias(sizes, T_star, biases[e], errors[e]) for e, name in enumerate(estimators)}


class _Problem:
    """Queries, pools and sizes n in one ratio, in float64 on the CPU."""

    def __init__(
        self,
        x: Tensor,
        pools: Sequence[Tensor],
        weights: Sequence[float],
        tau: float,
        kernel: str | LogKernel,
        n: Sequence[Sizes],
        rtol: float,
    ) -> None:
        self.x, *self.pools = (each.detach().to("cpu", torch.float64) for each in (x, *pools))
        self.log_weights = [math.log(weight) for weight in weights]
        self.tau, self.kernel, self.n, self.rtol = tau, log_kernel(kernel), n, rtol
        # The origin of y is near T*, so that no digits are lost far from zero
        self.center = torch.stack([pool.mean(0) for pool in self.pools]).mean(0)
        self.y = [pool - self.center for pool in self.pools]

    def solve(
        self,
        expectations: Sequence[Expectation],
        powers: Sequence[int],
        *,
        second: bool = False,
        progress: Progress = no_progress,
    ) -> tuple[Tensor, list[Solution]]:
        """Return T* [Q, D], and the value [Q, len(n), ·] and error [Q, len(n)] of each expectation.

        `powers` are those of w whose transforms they need. The unit of `second` moments is the square of a length.
        """
        parts, done = [], 0
        for x in self.x.split(self._queries_at_a_time()):
            progress("exact", done, len(self.x))
            parts.append(quadrature.refine(partial(self._solve_at, expectations, powers, second), x))
            done += len(x)
        progress("exact", done, done)
        by_expectation = zip(*(solutions for _, solutions in parts), strict=True)
        joined = [(torch.cat([v for v, _ in each]), torch.cat([e for _, e in each])) for each in by_expectation]
        return torch.cat([T_star for T_star, _ in parts]) + self.center, joined

    def _queries_at_a_time(self) -> int:
        """Return how many histograms fit, estimated from the range of log w at the first query."""
        (s,) = self._minus_log_weights(self.x[:1])
        cells = min(max(float(each.max()) for each in s) / GRID_STEP + 1, 1e15) * len(self.pools)
        return max(1, min(_MOST_QUERIES, int(_HISTOGRAM_ELEMENTS / (cells * (self.x.shape[1] + 2)))))

    def _solve_at(
        self, expectations: Sequence[Expectation], powers: Sequence[int], second: bool, x: Tensor, level: int
    ) -> tuple[Tensor, list[Solution], Tensor]:
        """Return T* − center, the solutions, and whether they are accurate enough, with steps halved `level` times."""
        few = max(map(len, self.pools)) <= POINTS_AS_THEY_ARE
        strata, nodes, coarser = (self._from_points if few else self._from_histograms)(x, 2.0**-level)
        T_star, centered = self._centered(strata)
        # The scale of y − T*
        square = torch.stack([cells.channels[..., -1].sum(-1, keepdim=True) for cells in centered]).amax(0)
        scale = square.clamp_min(0).sqrt()
        unit = (scale.square() if second else scale).clamp_min(torch.finfo(scale.dtype).tiny)
        # The expectations, also from every other node
        transformed = [transforms(cells, nodes, powers) for cells in centered]
        fewer, fewer_nodes = [each.every_other() for each in transformed], nodes.every_other()
        values = [(f(centered, transformed, nodes), f(centered, fewer, fewer_nodes)) for f in expectations]
        # The same from coarser histograms
        others = []
        for coarse, shift in coarser:
            (_, centered), at = self._centered(coarse), nodes.shifted(shift)
            transformed = [transforms(cells, at, powers) for cells in centered]
            others.append([f(centered, transformed, at) for f in expectations])
        solutions, met = quadrature.estimate_errors(values, others, unit, self.rtol)
        return T_star, solutions, met

    def _centered(self, strata: Strata) -> tuple[Tensor, Strata]:
        """Return T* − center, and the cells of y − T*."""
        T_star = quadrature.target(strata, _ratio(self.n[0]))
        return T_star, [cells.centered(T_star) for cells in strata]

    def _from_points(self, x: Tensor, scale: float) -> tuple[Strata, QuadratureNodes, list[tuple[Strata, float]]]:
        """Return cells of one point each, the nodes, and no coarser cells."""
        s = [torch.cat(parts) for parts in zip(*self._minus_log_weights(x), strict=True)]
        step, largest = NODE_STEP * scale, max(float(each.max()) for each in s)
        quadrature.require_memory(largest / step * max(map(len, self.pools)), largest)
        strata = [quadrature.cells_from_points(each, y) for each, y in zip(s, self.y, strict=True)]
        return strata, quadrature.quadrature_nodes(largest, max(map(sum, self.n)), step, step), []

    def _from_histograms(self, x: Tensor, scale: float) -> tuple[Strata, QuadratureNodes, list[tuple[Strata, float]]]:
        """Return histograms, the nodes, and two coarser histograms with the shift that their nodes need."""
        step = GRID_STEP * scale
        strata, coarser = _deposit_pools(self._minus_log_weights(x), self.y, step)
        largest = step * max(cells.channels.shape[1] for cells in strata)
        return strata, quadrature.quadrature_nodes(largest, max(map(sum, self.n)), NODE_STEP, 2 * step), coarser

    def _minus_log_weights(self, x: Tensor) -> Iterator[list[Tensor]]:
        """Yield s = −log w [some queries, N] of every stratum, 0 at the largest weight of a query in any stratum."""
        for some in quadrature.blocks(x, sum(map(len, self.pools))):
            strata = [quadrature.minus_log_kernel(self.kernel, some, pool, self.tau) for pool in self.pools]
            least = []
            for s, log_weight in zip(strata, self.log_weights, strict=True):
                low, high = s.aminmax(dim=-1, keepdim=True)
                require_finite(**{"the kernel's logarithm over the pool": torch.stack((low, high))})
                if log_weight:
                    s.sub_(log_weight)
                least.append(low - log_weight)
            yield [s.sub_(torch.stack(least).amin(0)) for s in strata]


def _ratio(n: Sizes) -> Sizes:
    """Return n divided by its greatest common divisor."""
    divisor = math.gcd(*n)
    return tuple(size // divisor for size in n)


def _deposit_pools(
    s: Iterable[list[Tensor]], y: Sequence[Float[Tensor, "N D"]], step: float
) -> tuple[Strata, list[tuple[Strata, float]]]:
    """Return histograms of the strata, and two coarser ones with the shift of their nodes; s has blocks of queries."""
    try:
        from truedrift.bias.histogram import coarsen, concatenate_grids, deposit  # noqa: PLC0415  numba is an extra
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"{missing.name} is not installed; a pool of more than {POINTS_AS_THEY_ARE} points needs it; "
            "run pip install 'truedrift[lab]'"
        ) from None
    # Deposit block by block
    grids = []
    for some in s:
        for each, values in zip(some, y, strict=True):
            largest = float(each.max())
            quadrature.require_memory(largest / step * max(16, (values.shape[1] + 2) / 8), largest)
        grids.append([deposit(each.numpy(), values.numpy(), step) for each, values in zip(some, y, strict=True)])
    strata = [concatenate_grids(parts) for parts in zip(*grids, strict=True)]
    # Make coarser histograms from the even and from the odd cells
    even, odd = ([torch.from_numpy(coarsen(grid, odd=odd)) for grid in strata] for odd in (False, True))
    return [quadrature.histogram(torch.from_numpy(grid), step) for grid in strata], [
        ([quadrature.histogram(grid, 2 * step) for grid in even], 0.0),
        ([quadrature.histogram(grid, 2 * step, -step) for grid in odd], -step),
    ]


def _mean(
    estimator: Estimator, n: tuple[int, ...], strata: Strata, transformed: list[Transforms], nodes: QuadratureNodes
) -> Tensor:
    """Compute E[T] − T* of an estimator of references from one pool."""
    if isinstance(estimator, BRSNIS):
        return _br_snis_mean(strata[0], nodes, n, iterations=estimator.iterations, burn_in=estimator.burn_in)
    if isinstance(estimator, Jackknife):
        # E[T_jack] = n E[T_n] − (n − 1) E[T_{n−1}]; for n = 1 it is E[T_1]
        sizes = [(size,) for size in (*n, *(max(size - 1, 1) for size in n))]
        T_n, T_less = integral(transformed, power_sums.mean_terms("standard"), sizes).chunk(2, -2)
        size = torch.tensor(n, dtype=torch.float64).unsqueeze(-1)
        return size * T_n - (size - 1) * T_less
    return integral(transformed, power_sums.mean_terms(estimator.name), [(size,) for size in n])


def _stratified_mean(
    name: str, n: Sequence[Sizes], strata: Strata, transformed: list[Transforms], nodes: QuadratureNodes
) -> Tensor:
    """Compute E[T] − T* of an estimator of references from several pools."""
    if name in power_sums.CENTROIDS:
        return integral(transformed, power_sums.mean_terms(name, (1,) * len(strata)), n)
    return torch.cat([integral(transformed, power_sums.mean_terms(name, sizes), [sizes]) for sizes in n], -2)


def _mse(problem: _Problem, name: str) -> Tensor:
    """Compute E‖T − T*‖²; NaN where it is not a finite number of integrals."""
    if name not in power_sums.CENTROIDS:
        return torch.full((len(problem.x), len(problem.n)), math.nan, dtype=torch.float64)
    terms = power_sums.second_moment_terms(name)

    def second_moment(strata: Strata, transformed: list[Transforms], nodes: QuadratureNodes) -> Tensor:
        return integral(transformed, terms, problem.n)

    _, ((value, _),) = problem.solve([second_moment], powers(terms), second=True)
    return value.squeeze(-1)


def _br_snis_mean(
    cells: PoolCells, nodes: QuadratureNodes, n: Sequence[int], *, iterations: int, burn_in: int
) -> Float[Tensor, "Q S D"]:
    """Compute E[T] − T* of BR-SNIS: the mean of E[T_k] over the iterations after the burn-in."""
    z = nodes.values()[:, None] - cells.s.unsqueeze(-2)  # [Q or 1, K, J]
    e_z = z.exp()
    H_0, H_1 = (-e_z).exp(), (z - e_z).exp()
    mass, y = cells.channels[..., :1], cells.channels[..., 1:-1]
    phi, B = H_0 @ mass, H_1 @ y  # [Q, K, 1], [Q, K, D]
    means = []
    for size in n:
        # φ^{n−1} and (n − 1) φ^{n−2} at the nodes, with the step of the trapezoid rule
        alone, joined = (nodes.step * phi ** max(size - k, 0) for k in (1, 2))
        joined = (size - 1) * joined
        total, stays = torch.zeros_like(B[:, 0]), H_1.mT @ alone
        # The law of the state, iteration by iteration
        r = torch.ones_like(mass)
        for k in range(iterations):
            nu = H_0 @ (r * mass)
            if k >= burn_in:
                total = total + ((H_1 @ (r * y)) * alone + nu * B * joined).sum(-2)
            r = r * stays + H_1.mT @ (nu * joined)
        means.append(total / (iterations - burn_in))
    return torch.stack(means, -2)


def _exact_estimator(estimator: str | Estimator) -> Estimator:
    """Return the estimator; require one of this library, because another class may have any name."""
    chosen = estimator_of(estimator)
    if type(chosen) not in (Standard, ABC, ABC2, Jackknife, BRSNIS):
        raise UserError(
            f"is {chosen.name!r}, a {type(chosen).__name__}",
            f"exact moments are available for {', '.join(ESTIMATORS)}",
            "measure others by Monte Carlo",
            field="estimator",
        )
    return chosen


def _require_tolerance(rtol: float) -> None:
    if not 0 < read_number(rtol) < 1:
        raise UserError(f"is {short_repr(rtol)}", "must be between 0 and 1", "the default is 1e-6", field="rtol")
