"""Scaling of features to a common scale before distances are computed, so that one set of temperatures fits all.

| name            | coordinates                                             | distances in the kernel    |
|-----------------|---------------------------------------------------------|----------------------------|
| standardize-l2  | (f − μ)/σ per dimension, then divided by their norm     | unchanged, in [0, 2]       |
| mean-distance   | f / max(s/√D, 1e-3), s the mean distance                | divided by √D: mean 1      |
| none            | f                                                       | unchanged                  |

μ and σ (unbiased, at least 1e-6) are computed from the generated and the positive features of the group, and from
fresh negatives; s is the weighted mean distance from the generated features to all columns. Gradients do not flow
through these statistics. Unconditional negatives are transformed with μ and σ but not counted in them; they count with
their weight in s.

Groups may share statistics. The features of one feature map are groups [P, …] of P problems, one per location. They are
in the same units, and a location at which little differs should not be enlarged to the size of the others. Then s, and
the RMS of the field, are means over all groups of a part of the first dimension (`share_means`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.distance import pairwise_distance

FeatureScale = Literal["standardize-l2", "mean-distance", "none"]
FEATURE_SCALES: tuple[FeatureScale, ...] = get_args(FeatureScale)

SMALLEST_DEVIATION = 1e-6
"""Lower bound for σ."""
SMALLEST_NORM = 1e-12
"""A standardized feature with a smaller norm counts as 0."""
SMALLEST_SCALE = 1e-3
"""Lower bound for s and s/√D."""


@dataclass(frozen=True)
class Features:
    """Generated, positive and additional negative features [..., rows, D] of every group."""

    gen: Tensor
    pos: Tensor
    neg: Tensor | None = None
    weight_neg: Tensor | None = None
    """[..., u] weights of the unconditional negatives."""
    fresh: bool = False
    """Whether `neg` is a second batch of generated features, the only negatives, instead of unconditional ones."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Features:
        """Apply `function` to every side."""
        neg = None if self.neg is None else function(self.neg)
        return replace(self, gen=function(self.gen), pos=function(self.pos), neg=neg)

    def concatenate(self) -> Tensor:
        """Return [gen | neg | pos] as rows of one tensor, [..., columns, D]."""
        return torch.cat([f for f in (self.gen, self.neg, self.pos) if f is not None], -2)

    @property
    def negatives(self) -> int:
        """The number of columns before the positives: the generated features, then the unconditional negatives."""
        return self.gen.shape[-2] + (0 if self.neg is None else self.neg.shape[-2])

    def distances(self) -> Tensor:
        """Compute d [..., n, columns] from the generated features to [gen | neg | pos], without gradient."""
        x = self.gen.detach()
        others = [pairwise_distance(x, side.detach()) for side in (self.neg, self.pos) if side is not None]
        return torch.cat([pairwise_distance(x, x, same=True), *others], -1)


@dataclass(frozen=True)
class ScaledFeatures:
    """Features on the common scale, and the distances that enter the kernel."""

    features: Features
    distances: Tensor
    unit: float = 1.0
    """The distance of two scaled features divided by the distance that enters the kernel."""


def share_means(values: Float[Tensor, "P ..."], parts: Sequence[int], keep: int = 0) -> Tensor:
    """Compute means over all groups of a part.

    Args:
        values: One value per group, [P, ..., *kept].
        parts: Sizes of consecutive parts of the first dimension, with sum P.
        keep: The number of last dimensions over which no mean is taken.

    Returns:
        [P, 1, ..., 1, *kept], the mean of the part of every group.

    Example:
        >>> share_means(torch.tensor([[1.0, 3.0], [3.0, 5.0], [7.0, 7.0]]), (2, 1)).flatten()
        tensor([3., 3., 7.])
    """
    inner = tuple(range(1, values.ndim - keep))
    rows = values.mean(inner, keepdim=True) if inner else values
    return torch.cat([part.mean(0, keepdim=True).expand_as(part) for part in rows.split(list(parts))])


def scale(
    features: Features, by: FeatureScale, *, over_batch: bool = False, share: Sequence[int] | None = None
) -> ScaledFeatures:
    """Scale features and compute their distances.

    Args:
        features: The features of every group.
        by: One of `FEATURE_SCALES`.
        over_batch: Whether "mean-distance" takes one mean over all groups.
        share: Sizes of the parts of the first dimension over which "mean-distance" takes its means.

    Returns:
        The scaled features and their distances.
    """
    if by == "standardize-l2":
        features = standardize_l2(features)
    if by == "mean-distance":
        return mean_distance(features, over_batch=over_batch, share=share)
    return ScaledFeatures(features, features.distances())


def standardize_l2(features: Features) -> Features:
    """Standardize per dimension, (f − μ)/σ over gen ∪ pos ∪ fresh, then divide by the norm."""
    return standardize(features)[0].map(_normalize_l2)


def standardize(features: Features) -> tuple[Features, Tensor]:
    """Return z = (f − μ)/σ per dimension over gen ∪ pos ∪ fresh, and σ [..., 1, D].

    One row is subtracted first, so that the mean rounds differences and not values: a constant dimension is exactly 0
    after the division by 1e-6, and a common offset costs no digits.
    """
    origin = features.pos[..., :1, :].detach()
    features = features.map(lambda f: f - origin)
    counted = [features.gen.detach(), features.pos]
    if features.fresh and features.neg is not None:
        counted.append(features.neg)
    count = sum(f.shape[-2] for f in counted)
    mean = _sum_rows(counted) / count
    variance = _sum_rows([(f - mean).square() for f in counted]) / (count - 1)
    deviation = variance.sqrt().clamp_min(SMALLEST_DEVIATION)
    return features.map(lambda f: (f - mean) / deviation), deviation


def _sum_rows(sides: Sequence[Tensor]) -> Tensor:
    """Sum over the rows of all sides, [..., 1, D]."""
    total, *others = (side.sum(-2, keepdim=True) for side in sides)
    for each in others:
        total = total + each
    return total


def _normalize_l2(z: Tensor) -> Tensor:
    """Return z/‖z‖, and 0 with gradient 0 for z = 0."""
    square = z.square().sum(-1, keepdim=True)
    directed = square > SMALLEST_NORM**2
    return torch.where(directed, z * torch.where(directed, square, 1).rsqrt(), 0)


def mean_distance(
    features: Features, *, over_batch: bool = False, share: Sequence[int] | None = None
) -> ScaledFeatures:
    """Scale to f / c with c = max(s/√D, 1e-3), and d / max(s, 1e-3), for the weighted mean distance s."""
    d = features.distances()
    weights = column_weights(features, d)
    dims = tuple(range(d.ndim)) if over_batch else (-2, -1)
    total, count = (each.mean(dims, keepdim=True) for each in (d * weights, weights.expand_as(d)))
    if share is not None:
        total, count = share_means(total, share), share_means(count, share)
    s = total / count
    c = (s * features.gen.shape[-1] ** -0.5).clamp_min(SMALLEST_SCALE)
    unit = features.gen.shape[-1] ** 0.5
    return ScaledFeatures(features.map(lambda f: f / c), d / s.clamp_min(SMALLEST_SCALE), unit)


def column_weights(features: Features, d: Tensor) -> Tensor:
    """Return the weight [..., 1, columns] of each column of `d`: `weight_neg` for unconditional negatives, else 1."""
    weights = torch.ones_like(d[..., :1, :])
    if features.neg is None or features.weight_neg is None:
        return weights
    n, negatives = features.gen.shape[-2], features.negatives
    return torch.cat((weights[..., :n], features.weight_neg.unsqueeze(-2), weights[..., negatives:]), -1)
