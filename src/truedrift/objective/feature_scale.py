"""Features are brought to a common scale before distances are taken, so that one set of temperatures fits all.

| name            | coordinates                                             | distances in the kernel    |
|-----------------|---------------------------------------------------------|----------------------------|
| standardize-l2  | (f − μ)/σ per dimension, then divided by their norm     | as they are, in [0, 2]     |
| mean-distance   | f / max(s/√D, 1e-3), s the mean distance                | divided by √D: mean 1      |
| none            | f                                                       | as they are                |

μ and σ (unbiased, at least 1e-6) run over generated and positive features of the group; s is the weighted mean
distance from the generated features to all columns. Statistics carry no gradient. Unconditional negatives are
transformed with μ and σ but not counted in them; they count with their weight in s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from truedrift.axes import Tensor
from truedrift.kernels.distance import pairwise_distance

FeatureScale = Literal["standardize-l2", "mean-distance", "none"]
FEATURE_SCALES: tuple[FeatureScale, ...] = get_args(FeatureScale)

SMALLEST_DEVIATION = 1e-6
SMALLEST_NORM = 1e-12
SMALLEST_SCALE = 1e-3


@dataclass(frozen=True)
class Features:
    """Generated, positive and unconditional negative features [..., rows, D] of every group."""

    gen: Tensor
    pos: Tensor
    neg: Tensor | None = None
    weight_neg: Tensor | None = None
    """[..., u] weights of the unconditional negatives."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Features:
        """The same function of every side."""
        neg = None if self.neg is None else function(self.neg)
        return Features(function(self.gen), function(self.pos), neg, self.weight_neg)

    @property
    def negatives(self) -> int:
        """How many columns come before the positives: the generated ones, then the unconditional ones."""
        return self.gen.shape[-2] + (0 if self.neg is None else self.neg.shape[-2])

    def distances(self) -> Tensor:
        """d [..., n, columns] from the generated features to the columns [gen | neg | pos], without gradient."""
        x = self.gen.detach()
        columns = [pairwise_distance(x, x, same=True)]
        if self.neg is not None:
            columns.append(pairwise_distance(x, self.neg.detach()))
        columns.append(pairwise_distance(x, self.pos.detach()))
        return torch.cat(columns, -1)


@dataclass(frozen=True)
class ScaledFeatures:
    """Features on the common scale, and their distances as the kernel sees them."""

    features: Features
    distances: Tensor
    unit: float = 1.0
    """A distance of features over this is the distance as the kernel sees it."""


def scale(features: Features, by: FeatureScale, *, over_batch: bool = False) -> ScaledFeatures:
    """Features and distances on the scale of that name. `over_batch` takes one mean distance for all groups."""
    if by == "standardize-l2":
        features = standardize_l2(features)
    if by == "mean-distance":
        return mean_distance(features, over_batch=over_batch)
    return ScaledFeatures(features, features.distances())


def standardize_l2(features: Features) -> Features:
    """(f − μ)/σ per dimension over gen ∪ pos, then unit length."""
    return standardize(features)[0].map(_unit)


def standardize(features: Features) -> tuple[Features, Tensor]:
    """z = (f − μ)/σ per dimension over gen ∪ pos, and σ [..., 1, D].

    One row is subtracted first, so that the mean rounds differences and not values: a dimension in which all are equal
    is exactly 0 after its division by 1e-6, and an offset that all share costs no digits.
    """
    origin = features.pos[..., :1, :].detach()
    features = features.map(lambda f: f - origin)
    counted = (features.gen.detach(), features.pos)
    count = sum(f.shape[-2] for f in counted)
    mean = _sum(*counted) / count
    variance = _sum(*((f - mean).square() for f in counted)) / (count - 1)
    deviation = variance.sqrt().clamp_min(SMALLEST_DEVIATION)
    return features.map(lambda f: (f - mean) / deviation), deviation


def _sum(gen: Tensor, pos: Tensor) -> Tensor:
    """Over the rows of both, [..., 1, D]."""
    return gen.sum(-2, keepdim=True) + pos.sum(-2, keepdim=True)


def _unit(z: Tensor) -> Tensor:
    """z/‖z‖, and 0 with gradient 0 for z = 0, which has no direction."""
    square = z.square().sum(-1, keepdim=True)
    directed = square > SMALLEST_NORM**2
    return torch.where(directed, z * torch.where(directed, square, 1).rsqrt(), 0)


def mean_distance(features: Features, *, over_batch: bool = False) -> ScaledFeatures:
    """f / c with c = max(s/√D, 1e-3), and d / max(s, 1e-3), for the weighted mean distance s."""
    d = features.distances()
    weights = column_weights(features, d)
    everything = tuple(range(d.ndim)) if over_batch else (-2, -1)
    s = (d * weights).mean(everything, keepdim=True) / weights.expand_as(d).mean(everything, keepdim=True)
    c = (s * features.gen.shape[-1] ** -0.5).clamp_min(SMALLEST_SCALE)
    unit = features.gen.shape[-1] ** 0.5
    return ScaledFeatures(features.map(lambda f: f / c), d / s.clamp_min(SMALLEST_SCALE), unit)


def column_weights(features: Features, d: Tensor) -> Tensor:
    """[..., 1, columns]: the weight of each column of `d`, 1 for generated and positive ones."""
    weights = torch.ones_like(d[..., :1, :])
    if features.neg is None or features.weight_neg is None:
        return weights
    n, negatives = features.gen.shape[-2], features.negatives
    return torch.cat((weights[..., :n], features.weight_neg.unsqueeze(-2), weights[..., negatives:]), -1)
