"""The jackknife T = n T_n − (n − 1) mean_i T_{n,−i} (`app:baselines`), as weights:

    γ_j = n α_j − ((n − 1)/n) Σ_{i≠j} α_j / (1 − α_i).

With 1/(1 − α_i) = 1 + o_i and the odds o_i = α_i/(1 − α_i), the multiples of n cancel on paper instead of in digits:

    γ_j = α_j (2 − 1/n) − (1 − 1/n) α_j Σ_{i≠j} o_i.

Only the largest weight can exceed ½, and only its odds can be 0/0 in digits. Its term is α_j o_top = α_top β_j, where β
are the weights of the references without it, normalized by their own largest. n counts the references that are not
masked; at n = 1 it is the identity. γ can be negative: it leaves the convex hull.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.base import rounded
from truedrift.kernels.distance import wide
from truedrift.kernels.weights import largest, softmax


@dataclass(frozen=True)
class Jackknife:
    """γ = n α − ((n − 1)/n) Σ_i (weights without i)."""

    name: str = "jackknife"
    bias_order: int = 2

    def budget(self, n: int) -> int:
        """n: nothing is drawn beyond the references given."""
        return n

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        """γ_j = α_j (2 − 1/n − (1 − 1/n) Σ_{i≠j} o_i)."""
        is_top, log_w_wide = largest(log_w, -1), wide(log_w)
        alpha = softmax(log_w_wide)
        beta = softmax(log_w_wide.masked_fill(is_top, -math.inf))
        alpha_top = alpha.amax(-1, keepdim=True)
        below = alpha.masked_fill(is_top, 0)
        odds = below / (1 - below)
        n = (log_w > -math.inf).sum(-1, keepdim=True).clamp_min(1).to(alpha.dtype)
        others = alpha * (odds.sum(-1, keepdim=True) - odds) + alpha_top * beta  # α_j Σ_{i≠j} o_i
        return rounded((2 - 1 / n) * alpha - (1 - 1 / n) * others, log_w)
