"""The part of the loss that both paths share: distances of every group → weights at every temperature.

d [..., n, columns] over columns [gen | neg | pos] becomes log k = −d/τ [..., T, n, columns] with each query's own
column masked, and then the weights of both sides; no loop over groups or temperatures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.field.sides import Form, Sides, Weighting, sides
from truedrift.field.temperatures import log_kernels
from truedrift.objective.feature_scale import Features


@dataclass(frozen=True)
class Outcome:
    """What a path computes: the loss, and what the report is made of."""

    loss: Tensor
    negatives: int
    distances: Tensor
    weight_neg: Tensor | None
    log_force: Tensor
    """[..., T] log of the RMS of each raw field."""


def group_sides(
    distances: Float[Tensor, "*batch n columns"],
    features: Features,
    temperatures: Sequence[float],
    weighting: Weighting,
    generator: torch.Generator | None = None,
) -> Sides:
    """γ± and masses [..., T, n, ·] of every group at every temperature."""
    n, negatives = features.gen.shape[-2], features.negatives
    return weigh(distances, n, negatives, features.weight_neg, temperatures, weighting, generator)


def weigh(
    distances: Float[Tensor, "*batch n columns"],
    n: int,
    negatives: int,
    weight_neg: Tensor | None,
    temperatures: Sequence[float],
    weighting: Weighting,
    generator: torch.Generator | None = None,
) -> Sides:
    """As `group_sides`, from distances alone."""
    own = torch.eye(n, distances.shape[-1], dtype=torch.bool, device=distances.device)
    log_k = log_kernels(distances.masked_fill(own, math.inf), temperatures)
    log_weight = None
    if weight_neg is not None:
        ones = torch.zeros_like(weight_neg[..., :1]).expand(*weight_neg.shape[:-1], n)
        log_weight = torch.cat((ones, weight_neg.log()), -1)[..., None, None, :]
    return sides(log_k, negatives, weighting, log_weight_neg=log_weight, generator=generator)


def forces(mean_square: Float[Tensor, "*batch T"], both: Sides, form: Form) -> Float[Tensor, "*batch T"]:
    """log RMS of each raw field, from the mean square of the field with relative masses."""
    log_rms = 0.5 * mean_square.log()
    return log_rms if form == "separate" else log_rms + both.largest_log_mass()[..., 0, 0]
