"""The jackknife T = n T_n − (n − 1) mean_i T_{n,−i} (`app:baselines`), as weights:

    γ_j = n α_j − ((n − 1)/n) Σ_{i≠j} w_j / (S − w_i),   S = Σ w.

With s_i = log(S − w_i), the sum is exp(l_j + log Σ_{i≠j} e^{−s_i}): the leave-one-out log-sum-exp applied twice,
O(n) and stable when one weight holds nearly everything, where 1 − α_i computed from α is 0/0. n counts the
references that are not masked; at n = 1 it is the identity. γ can be negative: it leaves the convex hull.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.weights import leave_one_out_logsumexp, softmax


@dataclass(frozen=True)
class Jackknife:
    """γ = n α − ((n − 1)/n) Σ_i (weights without i)."""

    name: str = "jackknife"
    bias_order: int = 2

    def budget(self, n: int) -> int:
        """n: nothing is drawn beyond the references given."""
        return n

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        drawn = log_w > -math.inf
        n = drawn.sum(-1, keepdim=True).to(log_w.dtype)
        log_w = torch.where(n > 0, log_w - log_w.detach().amax(-1, keepdim=True), log_w)
        without = leave_one_out_logsumexp(log_w, -1)
        usable = drawn & (without > -math.inf)  # a reference alone leaves nothing behind
        reciprocal = torch.where(usable, -without.masked_fill(~usable, 0), -math.inf)
        left_out = (log_w + leave_one_out_logsumexp(reciprocal, -1)).exp()
        return n * softmax(log_w) - (n - 1) / n.clamp_min(1) * left_out
