"""`tab:baselines`: bias, variance and time of the jackknife, the bootstrap, BR-SNIS and ABC (`app:baselines`).

N = 50 000 points of the four modes, 200 queries N(0, 0.25 I), τ = 0.1, n = 4 … 256 drawn without replacement, 5 000
trials. The time of an estimate is measured from log-weights and references to the centroid, one query at a time, as the
mean over estimates after the first ten. The table shows measured and exact values and those that the paper prints.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from truedrift.axes import Tensor
from truedrift.bias.exact import Moments, exact_moments_by_estimator
from truedrift.bias.monte_carlo import TrialMoments, monte_carlo
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import weighted_mean
from truedrift.data.toys import FOUR_MODES
from truedrift.grids.options import StudyOptions
from truedrift.kernels.kernel import laplace
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.item import Item
from truedrift.report.table import Number, Row, Scientific, Table

PAPER = {
    (8, "standard"): (6.24e-2, 7.54e-2, 5.9),
    (8, "jackknife"): (7.02e-2, 1.95e-1, 82.9),
    (8, "bootstrap"): (3.27e-2, 1.08e-1, 996.6),
    (8, "br-snis"): (7.89e-3, 6.68e-3, 1527.6),
    (8, "abc"): (4.99e-2, 8.03e-2, 25.5),
    (32, "standard"): (1.33e-2, 8.07e-3, 11.2),
    (32, "jackknife"): (3.40e-3, 9.85e-3, 136.0),
    (32, "bootstrap"): (7.07e-3, 9.00e-3, 1985.1),
    (32, "br-snis"): (1.09e-3, 1.24e-3, 3521.9),
    (32, "abc"): (7.26e-3, 8.61e-3, 36.9),
    (128, "standard"): (3.63e-3, 1.99e-3, 21.3),
    (128, "jackknife"): (6.20e-4, 2.15e-3, 325.2),
    (128, "bootstrap"): (9.94e-4, 2.12e-3, 3669.7),
    (128, "br-snis"): (2.18e-4, 2.60e-4, 10185.4),
    (128, "abc"): (1.03e-3, 2.10e-3, 57.0),
}
"""(|bias|, variance, microseconds) as the paper prints them."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """One estimator at one n; means over queries.

    `bias` is the naive norm ‖T̄ − T*‖ of `app:baselines`, `noise` the √(tr Σ̂/M) that it includes, `corrected` is b̂ of
    `app:toy`. `exact_bias` and `exact_variance` are for draws with replacement; None if there is no exact form.
    """

    n: int
    estimator: str
    references: int
    bias: float
    noise: float
    corrected: float
    variance: float
    exact_bias: float | None
    exact_variance: float | None
    microseconds: float


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The record: `trials` minibatches without replacement per query and n, `timed` estimates for the times."""

    pool_points: int
    queries: int
    trials: int
    timed: int
    tau: float
    rows: tuple[Baseline, ...]
    provenance: Provenance


TAU = 0.1
ESTIMATORS = ("standard", "jackknife", "bootstrap", "br-snis", "abc", "abc2")
EXACT = ("standard", "jackknife", "br-snis", "abc", "abc2")
SIZES = (4, 8, 16, 32, 64, 128, 256)
POOL_POINTS, QUERIES, TRIALS, TIMED, WARM_UP = 50_000, 200, 5_000, 500, 10
SMOKE_SIZES, SMOKE_POINTS, SMOKE_QUERIES, SMOKE_TRIALS, SMOKE_TIMED = (4, 8, 32), 2_000, 10, 400, 20


def study(setting: StudyOptions) -> Baselines:
    """Run the whole study at `cpu` and `paper`, and a small one at `smoke`."""
    # Draw the pool and the queries.
    start, small = time.perf_counter(), setting.scale == "smoke"
    sizes, trials, timed = (SMOKE_SIZES, SMOKE_TRIALS, SMOKE_TIMED) if small else (SIZES, TRIALS, TIMED)
    generator = torch.Generator().manual_seed(setting.seed)
    pool = FOUR_MODES.sample(SMOKE_POINTS if small else POOL_POINTS, generator, dtype=torch.float64)
    x = 0.5 * torch.randn(SMOKE_QUERIES if small else QUERIES, 2, generator=generator, dtype=torch.float64)
    # Measure times, then bias and variance by Monte Carlo, then exactly.
    seconds = {(name, n): _seconds(x, pool, name, n, timed, generator) for name in ESTIMATORS for n in sizes}
    sampled = monte_carlo(
        x,
        pool,
        tau=TAU,
        n=sizes,
        trials=trials,
        estimators=ESTIMATORS,
        replacement=False,
        seed=setting.seed,
        progress=setting.progress,
        keep=setting.directory,
    )
    exact: Mapping[str, Moments] = exact_moments_by_estimator(
        x, pool, tau=TAU, n=sizes, estimators=EXACT, progress=setting.progress
    )
    return Baselines(
        pool_points=len(pool),
        queries=len(x),
        trials=trials,
        timed=timed,
        tau=TAU,
        rows=tuple(
            _row(name, k, sampled[name], exact.get(name), 1e6 * seconds[name, n])
            for k, n in enumerate(sizes)
            for name in ESTIMATORS
        ),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _row(name: str, k: int, sampled: TrialMoments, exact: Moments | None, microseconds: float) -> Baseline:
    variance = math.nan if exact is None else exact.variance[:, k].mean().item()
    return Baseline(
        n=sampled.n[k],
        estimator=name,
        references=estimator_of(name).budget(sampled.n[k]),
        bias=sampled.naive[:, k].mean().item(),
        noise=sampled.noise[:, k].mean().item(),
        corrected=sampled.corrected[:, k].mean().item(),
        variance=sampled.variance[:, k].mean().item(),
        exact_bias=None if exact is None else torch.linalg.vector_norm(exact.bias[:, k], dim=-1).mean().item(),
        exact_variance=None if math.isnan(variance) else variance,
        microseconds=microseconds,
    )


def _seconds(x: Tensor, pool: Tensor, name: str, n: int, timed: int, generator: torch.Generator) -> float:
    """Return the mean time of one estimate from log-weights [m] and references [m, 2]."""
    estimator = estimator_of(name)
    total = 0.0
    for trial in range(timed + WARM_UP):
        y = pool[torch.randperm(len(pool), generator=generator)[: estimator.budget(n)]]
        log_w = laplace(x[trial % len(x)].unsqueeze(0), y, TAU)
        start = time.perf_counter()
        weighted_mean(estimator.reweight(log_w, generator), y)
        total += time.perf_counter() - start if trial >= WARM_UP else 0.0
    return total / timed


NAMES = {
    "standard": "Standard",
    "jackknife": "Jackknife",
    "bootstrap": "Bootstrap",
    "br-snis": "BR-SNIS (i-SIR)",
    "abc": "ABC",
    "abc2": "ABC-2",
}


def table(record: Baselines) -> Table:
    """Return one row per n and method, with the paper's values next to ours."""
    sizes = dict.fromkeys(row.n for row in record.rows)
    return Table(
        caption=(
            f"Bias, variance and time of an estimate, τ = {record.tau:g}, {record.queries} queries, "
            f"{record.trials:,} trials without replacement from {record.pool_points:,} points. "
            "|bias| is the naive norm, which includes the noise of the trials in quadrature. "
            "Exact values are for draws with replacement."
        ),
        label="tab:baselines",
        header=(
            *("n", "method", "|bias|", "noise", "exact", "paper", "Var", "exact", "paper"),
            *("time, µs", "paper", "references"),
        ),
        groups=[[_table_row(row) for row in record.rows if row.n == n] for n in sizes],
    )


def _table_row(row: Baseline) -> Row:
    bias, variance, microseconds = PAPER.get((row.n, row.estimator), (None, None, None))
    return (
        str(row.n),
        NAMES[row.estimator],
        *map(Scientific, (row.bias, row.noise, row.exact_bias, bias, row.variance, row.exact_variance, variance)),
        Number(row.microseconds, ".1f"),
        Number(microseconds, ".1f"),
        str(row.references),
    )


def findings(record: Baselines) -> list[str]:
    """Return one sentence per n: |bias|, variance and time of ABC as multiples of standard's, here and in the paper."""
    values = {(row.n, row.estimator): (row.bias, row.variance, row.microseconds) for row in record.rows}
    sentences = []
    for n in dict.fromkeys(row.n for row in record.rows):
        standard, abc = (n, "standard"), (n, "abc")
        if standard not in values or abc not in values:
            continue
        parts = []
        for k, name in enumerate(("|bias|", "variance", "time")):
            paper = f" (paper {PAPER[abc][k] / PAPER[standard][k]:.2f})" if abc in PAPER and standard in PAPER else ""
            parts.append(f"{name} {values[abc][k] / values[standard][k]:.2f}{paper}")
        sentences.append(f"n = {n}: ratio of ABC to standard: {', '.join(parts)}")
    return sentences


def screen_notes(record: Baselines) -> list[str]:
    """Return where the queries and the paper's values come from."""
    return [
        f"Queries are N(0, 0.25 I), seed {record.provenance.seed}. Paper: printed values, measured on another "
        "machine with another pool and other queries."
    ]


ITEM = Item(
    "tab:baselines",
    Baselines,
    "Bias, variance and time of every correction: measured here, exact, and as printed in the paper.",
    table=table,
    findings=findings,
    screen_notes=screen_notes,
)
