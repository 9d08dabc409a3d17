"""γ_i = α_i: the minibatch centroid T_n = Σ α_i y_i (`eq:centroid`).

It is biased by −E[w²(y − T*)] / (n E[w]²) + O(n⁻²) (`thm:ratio_bias`). At n = 1 the bias is −Cov(w, y)/E[w] exactly
(`thm:bias_n1`); it vanishes for constant weights and for data that are symmetric about the query (`thm:zero_bias`).
"""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.axes import Float, Tensor
from truedrift.centroids.base import OfAlpha


@dataclass(frozen=True)
class Standard(OfAlpha):
    """γ = α."""

    name: str = "standard"
    bias_order: int = 1

    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return alpha
