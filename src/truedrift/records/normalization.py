"""The study `normalization` as a record: the bias of the field that is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class FieldBias:
    """One normalization, estimator and side ("T_pos", "T_neg" or "V"); a number for each n.

    `square` is the mean over queries of b̂², unbiased for ‖bias‖², and `square_error` its standard error. `exact` is the
    root of the mean square by the exact engine, for the row normalization.
    """

    normalization: str
    estimator: str
    side: str
    square: tuple[float, ...]
    square_error: tuple[float, ...]
    exact: tuple[float, ...] | None

    @property
    def root(self) -> tuple[float, ...]:
        """Root mean square over queries; 0 where noise has taken everything."""
        return tuple(math.sqrt(max(0.0, square)) for square in self.square)

    @property
    def resolved(self) -> tuple[bool, ...]:
        """Whether the square is at least three of its standard errors above 0."""
        return tuple(square >= 3 * error for square, error in zip(self.square, self.square_error, strict=True))

    @property
    def root_error(self) -> tuple[float, ...]:
        """Of `root` where it is resolved; elsewhere an upper limit, from the square plus two of its errors."""
        columns = zip(self.root, self.square_error, self.resolved, strict=True)
        return tuple(e / (2 * root) if seen else math.sqrt(root**2 + 2 * e) for root, e, seen in columns)


@dataclass(frozen=True, kw_only=True)
class FieldBiases:
    """`trials` batches for every query and n, from pools of `pool_points` generated samples and positives."""

    pool_points: int
    queries: int
    trials: int
    tau: float
    n: tuple[int, ...]
    biases: tuple[FieldBias, ...]
    provenance: Provenance

    def of(self, normalization: str, estimator: str, side: str) -> FieldBias:
        """That one."""
        wanted = (normalization, estimator, side)
        (found,) = (each for each in self.biases if (each.normalization, each.estimator, each.side) == wanted)
        return found
