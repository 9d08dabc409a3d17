"""E[T_n] − T*, tr Var[T_n] and E‖T_n − T*‖² without Monte Carlo, for n draws with replacement from a finite pool.

Each expectation is a sum of integrals over t of products of transforms of the pool (`power_sums`, `transforms`,
`integrals`). y is centered at T* before, so that the bias is the integral itself and not a difference.

A small pool is summed point by point. A large one is put on a histogram over −log w first, O(N) a query whatever the
number of n. There T* is that of the histogram, whose error would otherwise be a bias of its own.

**Error.** The histogram's is judged by two of twice the step that are made from it, of the even and of the odd cells;
the larger difference counts, because one alone may vanish by chance. The trapezoid rule's is judged by every other
node. Steps are halved until both are small (`refinement`), and what was reached is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.integration import power_sums
from truedrift.bias.integration.cells import Cells, Nodes, nodes, points
from truedrift.bias.integration.chain import br_snis_mean
from truedrift.bias.integration.deposited import GRID_STEP, POINTS_AS_THEY_ARE, deposited
from truedrift.bias.integration.integrals import integral, powers
from truedrift.bias.integration.log_weights import blocks, minus_log_kernel
from truedrift.bias.integration.power_sums import Blocks
from truedrift.bias.integration.refinement import Solution, judged, refined, require_room
from truedrift.bias.integration.transforms import Transforms, transforms
from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.base import Estimator
from truedrift.centroids.br_snis import BRSNIS
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.jackknife import Jackknife
from truedrift.centroids.standard import Standard
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.progress import Progress, silent
from truedrift.validation import (
    mistake,
    require_finite,
    require_matrices,
    require_temperature,
)

ESTIMATORS = ("standard", "abc", "abc2", "jackknife", "br-snis")
"""Those whose expectation is a finite number of integrals."""

NODE_STEP = 3 / 16
_HISTOGRAM_ELEMENTS = 1 << 23
_MOST_QUERIES = 50
"""At a time, so that progress can be told."""

_Built = tuple[Cells, Nodes, list[tuple[Cells, float]]]

Rule = Callable[[Cells, Nodes, tuple[int, ...]], list[tuple[Tensor, Tensor]]]
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
    (moments,) = exact_moments_of_several(
        x, pool, tau=tau, n=n, estimators=(estimator,), kernel=kernel, rtol=rtol
    ).values()
    return moments


def exact_moments_of_several(
    x: Float[Tensor, "Q D"],
    pool: Float[Tensor, "N D"],
    *,
    tau: float,
    n: int | Sequence[int],
    estimators: Sequence[str | Estimator] = ("standard", "abc", "abc2"),
    kernel: str | LogKernel = "laplace",
    rtol: float = 1e-6,
    progress: Progress = silent,
) -> dict[str, Moments]:
    """The moments of several estimators by name, for one pass over the pool."""
    chosen = [_check_estimator(estimator) for estimator in estimators]
    if len({each.name for each in chosen}) < len(chosen) or not chosen:
        names = ", ".join(each.name for each in chosen) or "none"
        raise mistake(f"estimators are {names}", "allowed are one or more, each once", "ask for another one separately")
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
    terms: dict[Blocks, float], cells: Cells, at: Nodes, n: tuple[int, ...]
) -> list[tuple[Tensor, Tensor]]:
    transformed = transforms(cells, at, powers(terms))
    return [(integral(transformed, terms, n), integral(transformed.every_other(), terms, n))]


def _means(estimators: Sequence[Estimator], cells: Cells, at: Nodes, n: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """E[T] of every estimator, from the same transforms."""
    terms = {name: power_sums.mean(name) for name in power_sums.CENTROIDS}
    needed = {p for each in estimators for p in powers(terms.get(each.name, terms["standard"]))}
    transformed = transforms(cells, at, sorted(needed))
    fewer = transformed.every_other()

    def mean(estimator: Estimator, transformed: Transforms, at: Nodes) -> Tensor:
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

    def solve(self, rule: Rule, *, second: bool = False, progress: Progress = silent) -> tuple[Tensor, list[Solution]]:
        """(T* [Q, D], of each expectation of the rule its value [Q, len(n), ·] and error [Q, len(n)])."""
        parts, done = [], 0
        for x in self.x.split(self._queries_at_a_time()):
            progress("exact", done, len(self.x))
            parts.append(refined(partial(self._at, rule, second), x))
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
        solutions, met = judged(rule(centered, at, self.n), coarser, unit, self.rtol)
        return cells.target, solutions, met

    def _from_points(self, x: Tensor, scale: float) -> _Built:
        s = torch.cat(list(self._minus_log_weights(x)))
        step, largest = NODE_STEP * scale, float(s.max())
        require_room(largest / step * len(self.pool), largest)
        return points(s, self.pool - self.pool.mean(0)), nodes(largest, max(self.n), step, step), []

    def _from_histogram(self, x: Tensor, scale: float) -> _Built:
        step = GRID_STEP * scale
        cells, coarser = deposited(self._minus_log_weights(x), self.pool - self.pool.mean(0), step)
        largest = step * cells.channels.shape[1]
        return cells, nodes(largest, max(self.n), NODE_STEP, 2 * step), coarser

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
        raise mistake(
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
        raise mistake(f"n is {n!r}", "allowed is an integer from 1, or several", "pass for example (4, 8, 16)")
    if not 0 < rtol < 1:
        raise mistake(f"rtol is {rtol!r}", "allowed is a number between 0 and 1", "the default is 1e-6")
    return sizes
