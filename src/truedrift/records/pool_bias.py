"""The answer of `truedrift bias` as a record."""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class BiasAt:
    """One estimator at one n: means over queries.

    `bias` is ‖E[T_n] − T*‖, exact or b̂, `error` what it may be wrong by (exact) or its standard error; `noise` is
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
    rows: tuple[BiasAt, ...]
    provenance: Provenance
