"""`tab:baselines` as a record: bias, variance and time of every correction."""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """One estimator at one n; means over queries.

    `bias` is the naive norm ‖T̄ − T*‖ of `app:baselines`, `noise` the √(tr Σ̂/M) that it holds, `corrected` is b̂ of
    `app:toy`. `exact_bias` and `exact_variance` are of draws with replacement; None where there is no exact form.
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
    """The table: `trials` minibatches without replacement for every query and n, `timed` estimates for the times."""

    pool_points: int
    queries: int
    trials: int
    timed: int
    tau: float
    rows: tuple[Baseline, ...]
    provenance: Provenance
