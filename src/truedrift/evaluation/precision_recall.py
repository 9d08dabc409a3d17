"""Precision and recall by k nearest neighbors (Kynkäänniemi and others, 2019), k = 3.

A set's manifold is the union of balls around its features, each as large as the distance to its k-th nearest other
one. Precision is the share of generated features in the manifold of the data, recall the share of the data's in that
of the generated. A generator that knows one picture has precision 1 and recall near 0.
"""

from __future__ import annotations

import math

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.distance import squared_distance

NEIGHBORS = 3
ROWS = 1024
"""Of the distances at a time."""


def precision_recall(
    data: Float[Tensor, "n D"], generated: Float[Tensor, "m D"], *, k: int = NEIGHBORS
) -> tuple[float | None, float | None]:
    """(precision, recall); None where a side has no k-th neighbor."""
    if min(len(data), len(generated)) <= k:
        return None, None
    data, generated = data.double(), generated.double()
    return _share_inside(generated, data, k), _share_inside(data, generated, k)


def _share_inside(points: Tensor, centers: Tensor, k: int) -> float:
    """Share of the points in a ball of one of the centers."""
    radii = _squared_radii(centers, k)
    inside = [(squared_distance(rows, centers) <= radii).any(1) for rows in points.split(ROWS)]
    return float(torch.cat(inside).double().mean())


def _squared_radii(centers: Tensor, k: int) -> Float[Tensor, " n"]:
    """d² to the k-th nearest other one."""
    return torch.cat([_kth_other(centers, start, k) for start in range(0, len(centers), ROWS)])


def _kth_other(centers: Tensor, start: int, k: int) -> Tensor:
    rows = centers[start : start + ROWS]
    squared = squared_distance(rows, centers)
    squared[torch.arange(len(rows)), start + torch.arange(len(rows))] = math.inf  # not itself, duplicates or not
    return squared.topk(k, dim=1, largest=False).values[:, -1]
