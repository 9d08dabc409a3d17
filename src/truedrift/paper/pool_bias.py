"""`bias`: ‖E[T_n] − T*‖ for a named toy or a user's own pool, exact, or by Monte Carlo for any estimator.

This is the answer of `truedrift bias`: bias, noise, and their ratios.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch

from truedrift.axes import Tensor
from truedrift.bias import exact as exact_module
from truedrift.bias.checks import read_sizes, require_distinct
from truedrift.bias.exact import exact_moments_by_estimator
from truedrift.bias.monte_carlo import monte_carlo
from truedrift.bias.theory import pool_moments
from truedrift.centroids.catalog import ESTIMATORS
from truedrift.errors import UserError, require_choice, require_integer
from truedrift.progress import Progress, no_progress
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.item import Item
from truedrift.report.table import DASH, Row, Scientific, Table
from truedrift.tensor_checks import require_temperature


@dataclass(frozen=True, kw_only=True)
class BiasRow:
    """One estimator at one n: means over queries.

    `bias` is ‖E[T_n] − T*‖, exact or b̂; `error` its numerical error (exact) or standard error (b̂); `noise` is
    √(tr Var T_n), None where it has no exact form.
    """

    n: int
    estimator: str
    bias: float
    error: float
    noise: float | None


@dataclass(frozen=True, kw_only=True)
class PoolBias:
    """Bias of centroids of n references from a pool, at `queries` queries. `trials` is None if it is exact.

    `spread` is √(E‖y − T*‖²) over the pool, and `n_eff_share` is n_eff/n = 1/λ, both as means over queries.
    """

    pool: str
    pool_points: int
    dimensions: int
    queries: int
    tau: float
    kernel: str
    trials: int | None
    replacement: bool
    spread: float
    n_eff_share: float
    rows: tuple[BiasRow, ...]
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class Question:
    """The settings of the computation. With `trials`, it is Monte Carlo."""

    tau: float
    n: tuple[int, ...]
    estimators: tuple[str, ...]
    kernel: Literal["laplace", "gaussian"] = "laplace"
    trials: int | None = None
    replacement: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require_temperature(self.tau)
        read_sizes(self.n)
        allowed = exact_module.ESTIMATORS if self.trials is None else tuple(ESTIMATORS)
        for name in self.estimators:
            if self.trials is None and name in ESTIMATORS and name not in allowed:
                exact = f"estimators with an exact form: {', '.join(allowed)}"
                raise UserError(f"{name} has no exact form", exact, "add --trials 10000")
            require_choice("estimator", name, allowed)
        require_distinct(self.estimators)
        if self.trials is not None:
            require_integer("trials", self.trials, 2, 10_000)
        elif not self.replacement:
            allowed_draws = "exact values need draws with replacement"
            raise UserError("draws are without replacement", allowed_draws, "add --trials 10000")


def compute_pool_bias(
    question: Question, name: str, pool: Tensor, queries: Tensor, progress: Progress = no_progress
) -> PoolBias:
    """Compute the bias of every estimator at every n, for a pool [N, D] of this name and queries [Q, D]."""
    start = time.perf_counter()
    rows = tuple((_exact if question.trials is None else _sampled)(question, pool, queries, progress))
    spread, share = _spread_and_share(question, pool, queries)
    return PoolBias(
        pool=name,
        pool_points=len(pool),
        dimensions=pool.shape[1],
        queries=len(queries),
        tau=question.tau,
        kernel=question.kernel,
        trials=question.trials,
        replacement=question.replacement,
        spread=spread,
        n_eff_share=share,
        rows=rows,
        provenance=provenance(seed=question.seed, wall_seconds=time.perf_counter() - start),
    )


def _exact(question: Question, pool: Tensor, queries: Tensor, progress: Progress) -> Iterator[BiasRow]:
    found = exact_moments_by_estimator(
        queries,
        pool,
        tau=question.tau,
        n=question.n,
        estimators=question.estimators,
        kernel=question.kernel,
        progress=progress,
    )
    for name, moments in found.items():
        norm = torch.linalg.vector_norm(moments.bias, dim=-1)
        for k, n in enumerate(moments.n):
            noise = moments.variance[:, k].clamp_min(0).sqrt().mean().item()  # NaN where it has no exact form
            yield BiasRow(
                n=n,
                estimator=name,
                bias=norm[:, k].mean().item(),
                error=moments.error[:, k].mean().item(),
                noise=None if math.isnan(noise) else noise,
            )


def _sampled(question: Question, pool: Tensor, queries: Tensor, progress: Progress) -> Iterator[BiasRow]:
    assert question.trials is not None
    found = monte_carlo(
        queries,
        pool,
        tau=question.tau,
        n=question.n,
        trials=question.trials,
        estimators=question.estimators,
        kernel=question.kernel,
        replacement=question.replacement,
        seed=question.seed,
        progress=progress,
    )
    for name, sample in found.items():
        for k, n in enumerate(sample.n):
            yield BiasRow(
                n=n,
                estimator=name,
                bias=sample.corrected[:, k].mean().item(),
                error=(sample.error[:, k].square().sum().sqrt() / len(sample.bias)).item(),
                noise=sample.variance[:, k].sqrt().mean().item(),
            )


def _spread_and_share(question: Question, pool: Tensor, queries: Tensor) -> tuple[float, float]:
    """Return the means over queries of √(E‖y − T*‖²) and of 1/λ."""
    moments = pool_moments(queries, pool, tau=question.tau, kernel=question.kernel)
    around_mean = (pool.double() - moments.mean).square().sum(-1).mean()
    away = (moments.T_star - moments.mean).square().sum(-1)
    return (around_mean + away).sqrt().mean().item(), moments.n_eff(1).mean().item()


def table(record: PoolBias) -> Table:
    """Return one row per estimator and n."""
    how = "exact" if record.trials is None else f"{record.trials:,} trials, seed {record.provenance.seed}"
    draws = "with" if record.replacement else "without"
    groups: dict[str, list[Row]] = {row.estimator: [] for row in record.rows}
    for row in record.rows:
        groups[row.estimator].append((row.estimator, str(row.n), *map(Scientific, (row.bias, row.error, row.noise))))
    return Table(
        caption=(
            f"bias of the centroid of n references, drawn {draws} replacement from {record.pool} "
            f"({record.pool_points:,} × {record.dimensions}): {record.kernel} kernel, τ = {record.tau:g}, "
            f"{record.queries} queries, {how}"
        ),
        label="tab:bias",
        header=("estimator", "n", "bias", "error", "noise"),
        groups=list(groups.values()),
    )


def screen_table(record: PoolBias) -> Table:
    """Return the table with the bias as a share of the spread and of the noise."""
    error = "± error" if record.trials is None else "± std.err"
    header = ("estimator", "n", "bias", error, "of spread", "noise", "bias/noise")
    return replace(table(record), header=header, groups=[[_screen_row(row, record.spread) for row in record.rows]])


def _screen_row(row: BiasRow, spread: float) -> Row:
    noise = (DASH, DASH) if row.noise is None else (f"{row.noise:.3e}", _ratio(row.bias, row.noise))
    return (row.estimator, str(row.n), f"{row.bias:.3e}", f"{row.error:.1e}", _ratio(row.bias, spread), *noise)


def _ratio(value: float, of: float) -> str:
    return f"{value / of:.2%}" if of > 0 else DASH


def screen_notes(record: PoolBias) -> list[str]:
    """Return the spread and n_eff, and what the error and the noise are."""
    exact = (
        "Exact: error is the numerical error. Noise is √(tr Var T), the standard deviation of one minibatch's centroid."
    )
    sampled = "Bias is the variance-corrected norm. It is an upper limit where it is no larger than noise/√trials."
    means = f"spread of the pool around T* {record.spread:.4g}, n_eff {record.n_eff_share:.1%} of n"
    return [f"Means over queries: {means}.", exact if record.trials is None else sampled]


ITEM = Item(
    "bias",
    PoolBias,
    "Bias and noise of the centroid of n references from a pool.",
    table=table,
    screen_table=screen_table,
    screen_notes=screen_notes,
)
