"""E[T] − T* without Monte Carlo for references from several pools: n_s draws with replacement from pool s.

    T* = Σ_s n_s E_s[w y] / Σ_s n_s E_s[w],   w = w_s k(x, y) in pool s,

is the limit of T as all n_s grow in proportion. Classifier-free guidance draws its negatives so: from generated
samples with w_s = 1, and from unconditional real ones with w_s = w_u. The expectations are those of `strata_sums`;
every stratum has transforms of its own, for one scale of w and at the same nodes. y is centered at the T* of the
cells, which depends on the ratios of the n_s. The error is judged as in `exact`: by coarser histograms of all strata
at once, and by every other node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.exact import NODE_STEP
from truedrift.bias.integration.cells import Cells, Nodes, nodes, points
from truedrift.bias.integration.deposited import GRID_STEP, POINTS_AS_THEY_ARE, deposited
from truedrift.bias.integration.log_weights import blocks, minus_log_kernel
from truedrift.bias.integration.refinement import Solution, judged, refined, require_room
from truedrift.bias.integration.strata_sums import ESTIMATORS, Term, mean
from truedrift.bias.integration.transforms import Transforms, transforms
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.validation import (
    mistake,
    require_choice,
    require_finite,
    require_matrices,
    require_temperature,
)

POWERS = (1, 2, 3)
"""Of w, in the blocks of ABC."""
_HISTOGRAM_ELEMENTS = 1 << 23

Sizes = tuple[int, ...]
"""n_s of every stratum."""
_Built = tuple[list[Cells], Nodes, list[tuple[list[Cells], float]]]
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


def exact_bias_of_strata(
    x: Float[Tensor, "Q D"],
    pools: Sequence[Float[Tensor, "N D"]],
    *,
    tau: float,
    n: Sequence[Sizes],
    pool_weights: Sequence[float] | None = None,
    estimators: Sequence[str] = ESTIMATORS,
    kernel: str | LogKernel = "laplace",
    rtol: float = 1e-6,
) -> dict[str, StrataBias]:
    """The bias at queries x of the centroid of n_s references from each pool, joined, by name of the estimator.

    `n` has one size a pool, as often as wanted: ((8, 4), (16, 8)). `pool_weights` multiply the kernel, 1 for all if
    left out. Estimators are "standard", "abc" on the joined references, and "stratified-abc". float64 on the CPU.
    """
    weights = (1.0,) * len(pools) if pool_weights is None else tuple(pool_weights)
    _check(x, pools, tau, n, weights, estimators, rtol)
    queries, *strata = (each.detach().to("cpu", torch.float64) for each in (x, *pools))
    problem = _Problem(strata, weights, tau, log_kernel(kernel), tuple(map(tuple, n)), tuple(estimators), rtol)
    parts = [refined(problem.at, some) for some in queries.split(problem.queries_at_a_time(queries[:1]))]
    T_star = torch.cat([found for found, _ in parts]) + problem.center
    joined = [
        [torch.cat(each) for each in zip(*solutions, strict=True)]
        for solutions in zip(*(found for _, found in parts), strict=True)
    ]
    return {
        name: StrataBias(problem.n, T_star, bias, error) for name, (bias, error) in zip(estimators, joined, strict=True)
    }


@dataclass(frozen=True)
class _Problem:
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
        return max(1, int(_HISTOGRAM_ELEMENTS / (cells * (x.shape[1] + 2))))

    def at(self, x: Tensor, level: int) -> tuple[Tensor, list[Solution], Tensor]:
        """T*, E[T] − T* of every estimator, and whether the tolerance is met, with steps halved `level` times."""
        few = max(map(len, self.pools)) <= POINTS_AS_THEY_ARE
        strata, at, coarser_ones = (self._from_points if few else self._from_histograms)(x, 2.0**-level)
        coarser = [[value for value, _ in self._means(cells, at.shifted(by))] for cells, by in coarser_ones]
        T_star = target(strata, self.n)
        spread = torch.stack([_mean_square(cells, T_star) for cells in strata]).amax(0).sqrt()
        unit = spread.clamp_min(torch.finfo(spread.dtype).tiny)
        solutions, met = judged(self._means(strata, at), coarser, unit, self.rtol)
        return T_star, solutions, met

    def _means(self, strata: Sequence[Cells], at: Nodes) -> list[tuple[Tensor, Tensor]]:
        """E[T] − T* of every estimator [Q, len(n), D], and the same from every other node."""
        T_star = target(strata, self.n)
        transformed = [transforms(cells, at, POWERS) for cells in strata]
        found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in self.estimators}
        for k, sizes in enumerate(self.n):
            centered = [_centered(each, T_star[:, k]) for each in transformed]
            fewer = [each.every_other() for each in centered]
            for name in self.estimators:
                terms = mean(name, sizes)
                found[name].append((integral(centered, terms, sizes), integral(fewer, terms, sizes)))
        return [(_beside(value), _beside(less)) for value, less in (zip(*found[name], strict=True) for name in found)]

    def _from_points(self, x: Tensor, scale: float) -> _Built:
        s = [torch.cat(list(each)) for each in self._minus_log_weights(x)]
        step, largest = NODE_STEP * scale, max(float(of.max()) for of in s)
        require_room(largest / step * max(map(len, self.pools)), largest)
        strata = [points(of, y) for of, y in zip(s, self._y, strict=True)]
        return strata, self._nodes(largest, step, step), []

    def _from_histograms(self, x: Tensor, scale: float) -> _Built:
        step = GRID_STEP * scale
        s = self._minus_log_weights(x)
        built = [deposited(of, y, step) for of, y in zip(s, self._y, strict=True)]
        strata = [cells for cells, _ in built]
        coarser = [
            ([cells for cells, _ in same], same[0][1]) for same in zip(*(more for _, more in built), strict=True)
        ]
        largest = step * max(cells.channels.shape[1] for cells in strata)
        return strata, self._nodes(largest, NODE_STEP, 2 * step), coarser

    def _nodes(self, largest_s: float, step: float, multiple_of: float) -> Nodes:
        return nodes(largest_s, max(map(sum, self.n)), step, multiple_of)

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


def target(strata: Sequence[Cells], n: Sequence[Sizes]) -> Float[Tensor, "Q S D"]:
    """T* = Σ_s n_s Σ e^{−s} y / Σ_s n_s Σ e^{−s} for all sizes."""
    sums = torch.stack([((-cells.s).exp().unsqueeze(-2) @ cells.channels).squeeze(-2) for cells in strata], 1)
    total = torch.tensor(n, dtype=torch.float64) @ sums  # [Q, len(n), D + 2]
    return total[..., 1:-1] / total[..., :1]


def integral(strata: Sequence[Transforms], terms: dict[Term, float], n: Sizes) -> Float[Tensor, "Q D"]:
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


def _centered(transformed: Transforms, T: Float[Tensor, "Q D"]) -> Transforms:
    """Of y − T."""
    centered = {}
    for p, M in transformed.M.items():
        one, y = M[..., :1], M[..., 1:-1]
        centered[p] = torch.cat((one, y - one * T.unsqueeze(-2), torch.zeros_like(one)), -1)
    return Transforms(transformed.step, centered, transformed.log_phi)


def _mean_square(cells: Cells, T_star: Float[Tensor, "Q S D"]) -> Float[Tensor, "Q S"]:
    """E_s‖y − T*‖²."""
    one, y, square = cells.channels.sum(-2).tensor_split((1, -1), -1)
    cross = (T_star * y.unsqueeze(-2)).sum(-1)
    return (square - 2 * cross + T_star.square().sum(-1) * one).clamp_min(0)


def _beside(values: Sequence[Float[Tensor, "Q D"]]) -> Float[Tensor, "Q S D"]:
    return torch.stack(list(values), -2)


def _check(
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
        raise mistake("pools is empty", "allowed is one pool or more", "pass for example (generated, unconditional)")
    for k, pool in enumerate(pools):
        require_matrices(**{"x": x, f"pools[{k}]": pool})
        require_finite(**{"x": x, f"pools[{k}]": pool})
    if not n or not all(len(sizes) == len(pools) and all(_is_size(size) for size in sizes) for sizes in n):
        raise mistake(
            f"n is {n!r}",
            f"allowed are tuples of {len(pools)} integers from 1, one a pool",
            "pass for example ((8, 4), (16, 8)) for two pools",
        )
    if len(weights) != len(pools) or not all(0 < weight < math.inf for weight in weights):
        raise mistake(
            f"pool_weights is {weights!r}",
            f"allowed are {len(pools)} positive numbers, one a pool",
            "leave out a pool that has no weight",
        )
    for name in estimators:
        require_choice("estimator", name, ESTIMATORS)
    if not estimators or len(set(estimators)) < len(estimators):
        names = ", ".join(estimators) or "none"
        raise mistake(f"estimators are {names}", "allowed are one or more, each once", "leave them out for all")
    if not 0 < rtol < 1:
        raise mistake(f"rtol is {rtol!r}", "allowed is a number between 0 and 1", "the default is 1e-6")


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1
