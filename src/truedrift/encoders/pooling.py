"""Pooling: a feature map a [B, D, h, w] becomes feature groups, each a tensor [B, D] or [B, P, D].

| name      | features of a map                                                                                      |
|-----------|--------------------------------------------------------------------------------------------------------|
| mean      | m = (1/hw) Σ_p a_p                                                                                     |
| mean+std  | m, and √((1/hw) Σ_p (a_p − m)² + ε)                                                                    |
| patches   | the mean of each quadrant: upper left, upper right, lower left, lower right                            |
| locations | a_p of every location p                                                                                |
| pyramid   | a_p of every location; mean and deviation of 2×2 and of 4×4 patches; mean and deviation of the map     |

The first three say little about where things are. With the last two, every location and every patch is a drift problem
of its own, whose positives are the features of real images at the same place. They return one group [B, P, D] of P
problems per map, in parts: all locations are one part, and each statistic of a size of patches is another. Patches at
the right and lower border are smaller if the side of the map is not a multiple of theirs. A size of patches that would
cover the whole map is left out.

Maps are pooled in float32 or wider: E[a²] − E[a]² in bfloat16 would be rounding alone. ε = 1e-8 keeps the gradient of
the standard deviation finite (it is 0) where a map is constant. Quadrants of an odd side share its middle line
(adaptive 2×2 average). A map of tokens is pooled on its grid in the same way.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError

Pooling = Literal["mean", "mean+std", "patches", "locations", "pyramid"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

EPSILON = 1e-8
"""ε inside the root: the standard deviation of a constant map is 1e-4."""
PATCHES = (2, 4)
"""Sides of the patches of "pyramid"."""

_GROUPS: dict[Pooling, int] = {"mean": 1, "mean+std": 2, "patches": 4, "locations": 1, "pyramid": 1}


class GroupShape(NamedTuple):
    """The shape of a feature group: [B, D], or [B, P, D] with P problems in parts.

    Example:
        >>> GroupShape(24, (256, 1)).problems, GroupShape(24, (256, 1)).size
        (257, 6168)
    """

    dimension: int
    """D."""
    parts: tuple[int, ...] = (1,)
    """Problems per part."""

    @property
    def problems(self) -> int:
        """P, the number of problems."""
        return sum(self.parts)

    @property
    def size(self) -> int:
        """Numbers per sample."""
        return self.problems * self.dimension


def pool_map(features: Float[Tensor, "B D h w"], pooling: Pooling) -> list[Tensor]:
    """Pool one feature map to its groups."""
    if pooling == "locations":
        return [_locations(features)]
    if pooling == "pyramid":
        return [_pyramid(features)]
    if pooling == "patches":
        return list(F.adaptive_avg_pool2d(features, 2).flatten(2).unbind(-1))
    if pooling == "mean":
        return [features.mean((-2, -1))]
    mean = features.mean((-2, -1), keepdim=True)
    variance = (features - mean).square().mean((-2, -1))
    return [mean.flatten(1), (variance + EPSILON).sqrt()]


def pool_maps(maps: Iterable[Float[Tensor, "B D h w"]], poolings: Sequence[Pooling]) -> tuple[Tensor, ...]:
    """Pool several maps in float32 or wider, each by its own pooling; all groups of the first map come first."""
    wide = (features.to(torch.promote_types(features.dtype, torch.float32)) for features in maps)
    return tuple(
        group for features, pooling in zip(wide, poolings, strict=True) for group in pool_map(features, pooling)
    )


def group_shapes(
    channels: Sequence[int], sizes: Sequence[tuple[int, int]], poolings: Sequence[Pooling]
) -> tuple[GroupShape, ...]:
    """Return the shapes of all groups of maps with these channels and sizes (h, w), in the order of `pool_maps`."""
    maps = zip(channels, sizes, poolings, strict=True)
    return tuple(GroupShape(D, _parts(*size, pooling)) for D, size, pooling in maps for _ in range(_GROUPS[pooling]))


def parse_poolings(text: str, maps: int) -> tuple[Pooling, ...]:
    """Read one pooling for all maps, or one per map, separated by commas.

    Example:
        >>> parse_poolings("mean", 2), parse_poolings("locations,mean", 2)
        (('mean', 'mean'), ('locations', 'mean'))
    """
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in POOLINGS]
    if wrong:
        allowed = f"must be one of {', '.join(POOLINGS)}, or one per map separated by commas"
        raise UserError(f"is {text[:60]!r}", allowed, "choose from these", field="pooling")
    if len(names) not in (1, maps):
        problem = f"is {text[:60]!r} with {maps} maps"
        raise UserError(problem, "must be one name, or one per map", "add or remove names", field="pooling")
    return tuple(names if len(names) == maps else names * maps)  # type: ignore[arg-type]  # checked above


def require_maps(poolings: Sequence[Pooling], sizes: Sequence[tuple[int, int]]) -> None:
    """Require maps of 2×2 or more where the pooling needs them: one pixel has no deviation and no quadrants."""
    for pooling, (height, width) in zip(poolings, sizes, strict=True):
        if pooling not in ("mean", "locations") and min(height, width) < 2:
            problem = f"is {pooling!r} and a feature map is {height}×{width}"
            fix = 'use pooling "mean", larger images or fewer stages'
            raise UserError(problem, "needs maps of at least 2×2", fix, field="pooling")


def _locations(features: Float[Tensor, "B D h w"]) -> Float[Tensor, "B P D"]:
    """Return the features of every location, row by row."""
    return features.flatten(2).transpose(1, 2)


def _pyramid(features: Float[Tensor, "B D h w"]) -> Float[Tensor, "B P D"]:
    """Return locations, then mean and deviation of patches of every size, then those of the map."""
    sides = (*_patch_sides(*features.shape[-2:]), None)
    groups = [_locations(features)]
    square = features.square()
    for side in sides:
        shape = features.shape[-2:] if side is None else (side, side)
        mean = F.avg_pool2d(features, shape, ceil_mode=True)
        # E[a²] − E[a]² in float32 is enough: deviations are not near 0 in a trained network.
        variance = (F.avg_pool2d(square, shape, ceil_mode=True) - mean.square()).clamp_min(0)
        groups += [_locations(mean), _locations((variance + EPSILON).sqrt())]
    return torch.cat(groups, 1)


def _patch_sides(height: int, width: int) -> tuple[int, ...]:
    """Return the sides of patches that do not cover the map in one direction."""
    return tuple(side for side in PATCHES if side < min(height, width))


def _parts(height: int, width: int, pooling: Pooling) -> tuple[int, ...]:
    """Return the number of problems of every part of a group."""
    if pooling == "locations":
        return (height * width,)
    if pooling == "pyramid":
        patches = [math.ceil(height / side) * math.ceil(width / side) for side in _patch_sides(height, width)]
        return (height * width, *(count for each in (*patches, 1) for count in (each, each)))
    return (1,)
