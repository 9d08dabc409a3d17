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
from truedrift.kernels.distance import pairwise_distance, result_dtype
from truedrift.kernels.precision import to_widest

FeatureScale = Literal["standardize-l2", "mean-distance", "none"]
FEATURE_SCALES: tuple[FeatureScale, ...] = get_args(FeatureScale)

SMALLEST_DEVIATION = 1e-6
"""Lower bound for σ."""
SMALLEST_NORM = 1e-12
"""A standardized feature with a smaller norm counts as 0."""
SMALLEST_SCALE = 1e-3
"""Lower bound for s and s/√D."""
LARGEST = 1e30
"""Bound for what is subtracted from features: adding it to the largest float32 does not overflow."""


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

    def distances(self, *, wide: bool = False) -> Tensor:
        """Compute d [..., n, columns] from the generated features to [gen | neg | pos], without gradient.

        They are rounded to the format of the features, at least float32, or remain `wide`.
        """
        x = to_widest(self.gen.detach())
        others = [pairwise_distance(x, side.detach()) for side in (self.neg, self.pos) if side is not None]
        parts = [pairwise_distance(x, x, same=True), *others]
        return torch.cat(parts if wide else [self._round(part) for part in parts], -1)

    def _round(self, d: Tensor) -> Tensor:
        """Round distances, at most to the largest number of the format."""
        dtype = result_dtype(self.gen, self.pos)
        return d if d.dtype is dtype else d.clamp_max(torch.finfo(dtype).max).to(dtype)


@dataclass(frozen=True)
class ScaledFeatures:
    """Features on the common scale, and the distances that enter the kernel."""

    features: Features
    distances: Tensor
    unit: float = 1.0
    """The distance of two scaled features divided by the distance that enters the kernel."""
    unscaled: bool = False
    """Whether the features are as they were given, of any size."""


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
    return ScaledFeatures(features, features.distances(), unscaled=by == "none")


def standardize_l2(features: Features) -> Features:
    """Standardize per dimension, (f − μ)/σ over gen ∪ pos ∪ fresh, then divide by the norm."""
    return standardize(features)[0].map(_normalize_l2)


def standardize(features: Features) -> tuple[Features, Tensor]:
    """Return z = (f − μ)/σ per dimension over gen ∪ pos ∪ fresh, and σ [..., 1, D].

    One row is subtracted first, so that the mean rounds differences and not values: a constant dimension is exactly 0
    after the division by 1e-6, and a common offset costs no digits. A dimension with σ = ∞ in float32 is 0 as well; the
    limits of row and sum keep f − μ finite there.
    """
    origin = features.pos[..., :1, :].detach().clamp(-LARGEST, LARGEST)
    features = features.map(lambda f: f - origin)
    counted = [features.gen.detach(), features.pos]
    if features.fresh and features.neg is not None:
        counted.append(features.neg)
    count = sum(f.shape[-2] for f in counted)
    mean = limit_sum(_sum_rows(counted)) / count
    variance = _sum_rows([(f - mean).square() for f in counted]) / (count - 1)
    deviation = variance.sqrt().clamp_min(SMALLEST_DEVIATION)
    return features.map(lambda f: (f - mean) / deviation), deviation


def limit_sum(total: Tensor) -> Tensor:
    """Return the sum of rows within ±LARGEST; 0 where it overflowed to ∞ − ∞."""
    return total.nan_to_num(0.0).clamp(-LARGEST, LARGEST)


def _sum_rows(sides: Sequence[Tensor]) -> Tensor:
    """Sum over the rows of all sides, [..., 1, D]."""
    total, *others = (side.sum(-2, keepdim=True) for side in sides)
    for each in others:
        total = total + each
    return total


def _normalize_l2(z: Tensor) -> Tensor:
    """Return z/‖z‖, and 0 with gradient 0 for z = 0. NaN remains NaN."""
    square = z.square().sum(-1, keepdim=True)
    zero = square <= SMALLEST_NORM**2
    return torch.where(zero, 0, z * torch.where(zero, 1, square).rsqrt())


def mean_distance(
    features: Features, *, over_batch: bool = False, share: Sequence[int] | None = None
) -> ScaledFeatures:
    """Scale to f / c with c = max(s/√D, 1e-3), and d / max(s, 1e-3), for the weighted mean distance s."""
    d = features.distances(wide=True)
    dims = tuple(range(d.ndim)) if over_batch else (-2, -1)
    if features.weight_neg is None:
        s = _shared_mean(d, dims, share)
    else:
        weights = column_weights(features, d)
        s = _shared_mean(d * weights, dims, share) / _shared_mean(weights.expand_as(d), dims, share)
    unit, dtype = features.gen.shape[-1] ** 0.5, result_dtype(features.gen, features.pos)
    c = torch.maximum((s / unit).clamp_min(SMALLEST_SCALE), _smallest_scale(features.pos)).to(dtype)
    return ScaledFeatures(features.map(lambda f: f / c), (d / s.clamp_min(SMALLEST_SCALE)).to(dtype), unit)


def _shared_mean(values: Tensor, dims: tuple[int, ...], share: Sequence[int] | None) -> Tensor:
    """Compute the mean over `dims`, and over the groups of a part."""
    mean = values.mean(dims, keepdim=True)
    return mean if share is None else share_means(mean, share)


def _smallest_scale(pos: Tensor) -> Tensor:
    """Return c [..., 1, 1] for which f/c is in range if all features are equal: above 1e-3 only if they exceed 10¹⁵."""
    return to_widest(pos[..., :1, :].detach().abs().amax(-1, keepdim=True)) * 2.0**-60


def column_weights(features: Features, d: Tensor) -> Tensor:
    """Return the weight [..., 1, columns] of each column of `d`: `weight_neg` for unconditional negatives, else 1."""
    weights = torch.ones_like(d[..., :1, :])
    if features.neg is None or features.weight_neg is None:
        return weights
    n, negatives = features.gen.shape[-2], features.negatives
    return torch.cat((weights[..., :n], features.weight_neg.unsqueeze(-2), weights[..., negatives:]), -1)
