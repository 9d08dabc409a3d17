"""γ_i = α_i: the minibatch centroid T_n = Σ α_i y_i (`eq:centroid`), biased by O(1/n) (`thm:ratio_bias`)."""

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
