"""Pooling: a feature map a [B, D, h, w] becomes feature groups [B, D].

| name     | groups | each group                                                                |
|----------|--------|---------------------------------------------------------------------------|
| mean     | 1      | m = (1/hw) Σ_p a_p                                                        |
| mean+std | 2      | m, and √((1/hw) Σ_p (a_p − m)² + ε)                                       |
| patches  | 4      | the mean of each quadrant: upper left, upper right, lower left, lower right |

ε = 1e-8 keeps the gradient of the standard deviation finite (it is 0) where a map is constant. Quadrants of an odd side
share its middle line (adaptive 2×2 average). A map of tokens is pooled on its grid in the same way.
"""

from collections.abc import Iterable
from typing import Literal, get_args

from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError

Pooling = Literal["mean", "mean+std", "patches"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

EPSILON = 1e-8
"""ε inside the root: the standard deviation of a constant map is 1e-4."""


_GROUPS: dict[Pooling, int] = {"mean": 1, "mean+std": 2, "patches": 4}


def pool_map(features: Float[Tensor, "B D h w"], pooling: Pooling) -> list[Float[Tensor, "B D"]]:
    """Pool one feature map to its groups."""
    if pooling == "patches":
        return list(F.adaptive_avg_pool2d(features, 2).flatten(2).unbind(-1))
    if pooling == "mean":
        return [features.mean((-2, -1))]
    mean = features.mean((-2, -1), keepdim=True)
    variance = (features - mean).square().mean((-2, -1))
    return [mean.flatten(1), (variance + EPSILON).sqrt()]


def pool_maps(maps: Iterable[Float[Tensor, "B D h w"]], pooling: Pooling) -> tuple[Tensor, ...]:
    """Pool several maps; all groups of the first map come first."""
    return tuple(group for features in maps for group in pool_map(features, pooling))


def group_dimensions(channels: Iterable[int], pooling: Pooling) -> tuple[int, ...]:
    """Return D_s of every group of maps with these channels, in the order of `pool_maps`."""
    return tuple(D for D in channels for _ in range(_GROUPS[pooling]))


def require_map(pooling: Pooling, height: int, width: int) -> None:
    """Require maps of 2×2 or more for every pooling but the mean: one pixel has no deviation and no quadrants."""
    if pooling != "mean" and min(height, width) < 2:
        problem = f"is {pooling!r} and the smallest feature map is {height}×{width}"
        fix = 'use pooling "mean", larger images or fewer stages'
        raise UserError(problem, "needs maps of at least 2×2", fix, field="pooling")
