"""`guidance` as a record: plain against stratified ABC with two strata."""

from __future__ import annotations

import math
from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class AtStrength:
    """One guidance strength a. Biases are means over queries of ‖E[T] − T*‖, one for each pair of sizes."""

    strength: float
    w_u: float
    standard: tuple[float, ...]
    abc: tuple[float, ...]
    stratified: tuple[float, ...]
    share_nearer: tuple[float, ...]
    """Share of queries at which stratified ABC has a smaller bias than plain ABC."""
    relative_error: float
    """The largest error of a bias that the engine reports, as a share of it."""

    def slopes(self, sizes: tuple[tuple[int, int], ...]) -> tuple[float, float, float]:
        """Exponents of n between the last two sizes: standard, plain and stratified ABC."""
        factor = math.log(sum(sizes[-1]) / sum(sizes[-2]))
        plain, abc, stratified = (
            math.log(bias[-1] / bias[-2]) / factor for bias in (self.standard, self.abc, self.stratified)
        )
        return plain, abc, stratified


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """n_gen generated and n_unc unconditional negatives (`sizes`), at several strengths of guidance."""

    tau: float
    pool_points: int
    queries: int
    generated_means: tuple[tuple[float, float], ...]
    generated_std: float
    sizes: tuple[tuple[int, int], ...]
    at: tuple[AtStrength, ...]
    provenance: Provenance
