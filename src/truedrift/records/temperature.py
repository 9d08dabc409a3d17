"""`app:temperature` as a record."""

from __future__ import annotations

import math
from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class Compensated:
    """n references whose centroid at τ′ is to stand for T* at τ; biases are means over queries of ‖E[T] − T*(τ)‖."""

    n: int
    standard: float
    abc: float
    remaining: tuple[float, ...]
    """At each of the ratios τ′/τ."""
    best_ratio: float
    """The one τ′/τ of all queries with the smallest mean, and that mean."""
    best: float
    own_best: float
    """The mean if every query had the best τ′/τ of its own, within the range of the ratios."""


@dataclass(frozen=True, kw_only=True)
class AtTemperature:
    """One τ: n·Δ of `eq:compensation` and the angle of ∂T*/∂τ with g_2 at every query, and what τ′ achieves."""

    tau: float
    shifts: tuple[float, ...]
    angles_degrees: tuple[float, ...]
    sizes: tuple[Compensated, ...]
    interpolation_error: float
    """Largest ‖E[T_n(τ′)] interpolated at τ′ = τ − the exact one‖, as a share of the standard bias there."""

    @property
    def slopes(self) -> tuple[float, float, float, float]:
        """Exponents of n between the last two sizes: standard, the best τ′, the best of each query, ABC."""
        last, before = self.sizes[-1], self.sizes[-2]
        factor = math.log(last.n / before.n)
        standard, best, own_best, abc = (
            math.log(getattr(last, name) / getattr(before, name)) / factor
            for name in ("standard", "best", "own_best", "abc")
        )
        return standard, best, own_best, abc


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """`app:temperature` on the four modes: no τ′ compensates, and n_eff falls with τ."""

    pool_points: int
    queries: int
    ratios: tuple[float, ...]
    at: tuple[AtTemperature, ...]
    taus: tuple[float, ...]
    share_low: tuple[float, ...]
    """n_eff/n over queries at each of `taus`: quantile 0.05, median, quantile 0.95."""
    share_median: tuple[float, ...]
    share_high: tuple[float, ...]
    falls: int
    """Pairs of neighboring τ and a query where n_eff does not grow with τ, of (len(taus) − 1)·queries."""
    provenance: Provenance
