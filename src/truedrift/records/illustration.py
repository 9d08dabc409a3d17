"""`fig:illustration` as a record."""

from __future__ import annotations

import math
from dataclasses import dataclass

from truedrift.records.origin import Provenance

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Illustration:
    """One query, `draws` minibatches of n references, and the centroids of draw 0 (`fig:illustration`).

    `mean_*` is the centroid averaged over the draws, `noise_*` the Monte-Carlo standard error of that mean,
    √(tr Σ̂ / draws), None for a single draw; `rms_*` is the root mean square distance to T*, and `share_nearer` the
    share of draws with ‖T_n^ABC − T*‖ < ‖T_n − T*‖. `cloud` is a sample of the clusters, to be drawn behind.
    """

    n: int
    draws: int
    tau: float
    query: Point
    modes: tuple[Point, ...]
    std: float
    cloud: tuple[Point, ...]
    pool_points: int
    T_star: Point
    references: tuple[Point, ...]
    T_standard: Point
    T_abc: Point
    mean_standard: Point
    mean_abc: Point
    noise_standard: float | None
    noise_abc: float | None
    rms_standard: float
    rms_abc: float
    share_nearer: float
    provenance: Provenance

    @property
    def distance_standard(self) -> float:
        """‖T_n − T*‖ of draw 0."""
        return math.dist(self.T_standard, self.T_star)

    @property
    def distance_abc(self) -> float:
        """‖T_n^ABC − T*‖ of draw 0."""
        return math.dist(self.T_abc, self.T_star)

    @property
    def bias_standard(self) -> float:
        """‖mean of T_n − T*‖."""
        return math.dist(self.mean_standard, self.T_star)

    @property
    def bias_abc(self) -> float:
        """‖mean of T_n^ABC − T*‖."""
        return math.dist(self.mean_abc, self.T_star)
