"""The bootstrap correction T = 2 T_n − mean_b T*_b (`app:baselines`), as weights:

    γ_i = 2 α_i − mean_b c_bi w_i / Σ_j c_bj w_j,   c_b ~ Multinomial(n; 1/n, …, 1/n).

A resample is normalized by its own largest weight, so that one without the dominating reference is not a sum that has
underflowed. Only references that are not masked are drawn, as many as there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.base import rounded
from truedrift.kernels.distance import wide
from truedrift.kernels.weights import masked, softmax
from truedrift.validation import mistake


@dataclass(frozen=True)
class Bootstrap:
    """γ = 2α − the mean weight over `resamples` draws with replacement."""

    resamples: int = 100
    name: str = "bootstrap"
    bias_order: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.resamples, int) or self.resamples < 1:
            raise mistake(f"resamples is {self.resamples!r}", "allowed is an integer from 1", "the paper takes 100")

    def budget(self, n: int) -> int:
        """n: resamples reuse the references given."""
        return n

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        log_w_wide = wide(log_w)
        counts = self._counts(log_w > -math.inf, log_w_wide.dtype, generator)
        resampled = counts * softmax(masked(log_w_wide, counts > 0))
        resampled = resampled / resampled.sum(-1, keepdim=True).clamp_min(1)  # at least 1, but 0 for an empty row
        return rounded(2 * softmax(log_w_wide) - resampled.mean(0), log_w)

    def _counts(self, drawn: Tensor, dtype: torch.dtype, generator: torch.Generator | None) -> Tensor:
        """c [resamples, ..., n]: how often each of the n drawn references is drawn again in n draws."""
        n = drawn.sum(-1, keepdim=True)
        uniform = torch.rand((self.resamples, *drawn.shape), dtype=dtype, device=drawn.device, generator=generator)
        rank = (uniform * n).long().minimum(n - 1).clamp_min(0)
        column = drawn.long().argsort(dim=-1, descending=True, stable=True)  # the drawn ones first, in their order
        again = column.expand_as(rank).gather(-1, rank)
        draws = (torch.arange(drawn.shape[-1], device=drawn.device) < n).to(dtype).expand_as(uniform)
        return torch.zeros_like(uniform).scatter_add(-1, again, draws)
