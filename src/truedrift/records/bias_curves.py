"""`fig:bias_loglog` as a record: bias against n, exactly and by Monte Carlo."""

from __future__ import annotations

import math
from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class SampledPoints:
    """Monte Carlo for each n; means over the queries that were sampled.

    `bias` is b̂ (`app:toy`) with standard error `error`, and `noise` is √(tr Σ̂/M). `square` is the unbiased b̂² with
    standard error `square_error`, and `exact_square` what it estimates.
    """

    bias: tuple[float, ...]
    error: tuple[float, ...]
    noise: tuple[float, ...]
    square: tuple[float, ...]
    square_error: tuple[float, ...]
    exact_square: tuple[float, ...]

    @property
    def within_two_errors(self) -> tuple[bool, ...]:
        """For each n, whether b̂² is within two of its standard errors of the exact value."""
        columns = zip(self.square, self.exact_square, self.square_error, strict=True)
        return tuple(abs(sampled - exact) <= 2 * error for sampled, exact, error in columns)


@dataclass(frozen=True, kw_only=True)
class BiasCurve:
    """One estimator at one temperature: the mean over queries of ‖E[T_n] − T*‖ for each n, and its numerical error."""

    tau: float
    estimator: str
    exact: tuple[float, ...]
    exact_error: tuple[float, ...]
    points: SampledPoints | None


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """Where the exact bias of the standard centroid points at one temperature: shares of queries, for each n.

    `away_from_query`: the angle to x − T* is obtuse; `away_from_mode`: that to (nearest mode) − T*; `toward_mean`: that
    to E[y] − T* is acute. `abc_exceeds`: the bias of ABC is the larger one.
    """

    tau: float
    away_from_query: tuple[float, ...]
    away_from_mode: tuple[float, ...]
    toward_mean: tuple[float, ...]
    abc_exceeds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class BiasCurves:
    """The figure: N pool points, queries from the same distribution, and `trials` minibatches of every n, or none."""

    pool_points: int
    queries: int
    trials: int
    n: tuple[int, ...]
    curves: tuple[BiasCurve, ...]
    contractions: tuple[Contraction, ...]
    exact_seconds: float
    sampled_seconds: float
    provenance: Provenance

    @property
    def temperatures(self) -> tuple[float, ...]:
        """In the order of the panels."""
        return tuple(dict.fromkeys(curve.tau for curve in self.curves))

    def slope(self, curve: BiasCurve) -> float:
        """d log(exact) / d log n between the last two n."""
        (a, b), (n, m) = curve.exact[-2:], self.n[-2:]
        return math.log(b / a) / math.log(m / n)

    @property
    def within_two_errors(self) -> tuple[bool, ...]:
        """Of every Monte-Carlo point; 95 % are expected."""
        return tuple(each for curve in self.curves if curve.points for each in curve.points.within_two_errors)
