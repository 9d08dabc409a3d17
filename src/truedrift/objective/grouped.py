"""The part of the loss that both paths share: kernels of every group → weights at every temperature.

log k [..., T, n, columns] over columns [gen | neg | pos], −d/τ for the paper's kernel, has each query's own column
masked and becomes the weights of both sides; no loop over groups or temperatures. A query without negatives is
its own centroid, T⁻ = f: only a single generated feature can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from truedrift.axes import Float, Tensor
from truedrift.field.sides import Form, Sides, Weighting, sides
from truedrift.field.temperatures import log_kernels


@dataclass(frozen=True)
class Outcome:
    """What a path computes: the loss, and what the report is made of."""

    loss: Tensor
    negatives: int
    distances: Tensor
    weight_neg: Tensor | None
    mean_square: Tensor
    """[..., T] mean V_τ² with relative masses."""
    largest_log_mass: Tensor
    """[..., T] the logarithm of what those masses are relative to; 0 for the separate form."""
    log_k: Tensor | None = None
    """[..., T, n, columns] of a kernel that is not −d/τ; None for that one, which the distances give again."""

    def log_kernels(self, temperatures: Sequence[float]) -> Float[Tensor, "*batch T n columns"]:
        """log k at every temperature, in memory of its own."""
        return log_kernels(self.distances, temperatures) if self.log_k is None else self.log_k.clone()


def weigh(
    log_k: Float[Tensor, "*batch T n columns"],
    negatives: int,
    weight_neg: Tensor | None,
    weighting: Weighting,
    *,
    bounded: bool = False,
    generator: torch.Generator | None = None,
) -> Sides:
    """γ± and masses [..., T, n, ·] of every group at every temperature; `bounded` says that no log k is infinite.

    The own columns of `log_k` are masked in place.
    """
    n = log_k.shape[-2]
    log_k.diagonal(dim1=-2, dim2=-1).fill_(-math.inf)
    log_weight = None
    if weight_neg is not None:
        log_weight = torch.nn.functional.pad(weight_neg.log(), (n, 0))[..., None, None, :]
    both = sides(
        log_k,
        negatives,
        weighting,
        log_weight_neg=log_weight,
        nowhere_empty=bounded and n > 1,
        generator=generator,
    )
    return both if n > 1 else _its_own_centroid(both)


def _its_own_centroid(both: Sides) -> Sides:
    """γ⁻ = 1 on the own column, the first, of a single query whose negatives have no weight."""
    alone = (both.alpha_neg == 0).all(-1, keepdim=True)
    own = torch.nn.functional.pad(alone.to(both.gamma.dtype), (0, both.gamma.shape[-1] - 1))
    return replace(both, gamma=both.gamma + own)


def largest_log_mass(both: Sides, form: Form) -> Float[Tensor, "*batch T"]:
    """[..., T] the logarithm of the largest mass, 0 for the separate form."""
    largest = both.largest_log_mass[..., 0, 0]
    return largest if form == "product" else torch.zeros_like(largest)
