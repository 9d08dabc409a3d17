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
problems per map, in parts: all locations are one part, and each statistic of a size of patches is another. A size of
patches that would cover the whole map is left out, and so are rows and columns that fill no patch.

A step may need only some problems of each part. `pool_map` with `places` computes no others, which is much less work
for many positives.

ε = 1e-8 keeps the gradient of the standard deviation finite (it is 0) where a map is constant. Quadrants of an odd side
share its middle line (adaptive 2×2 average). A map of tokens is pooled on its grid in the same way.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
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

GroupPlaces = tuple[Tensor, ...]
"""Problems of one group: for every part of it, their numbers within the part."""
Places = Sequence[GroupPlaces | None]
"""Problems of every group; None for all problems of a group."""

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

    def numbers(self, places: "GroupPlaces") -> Tensor:
        """Return the numbers of these problems among all problems of the group."""
        starts = accumulate(self.parts, initial=0)
        return torch.cat([start + chosen for start, chosen in zip(starts, places, strict=False)])


def pool_map(features: Float[Tensor, "B D h w"], pooling: Pooling, places: GroupPlaces | None = None) -> list[Tensor]:
    """Pool one feature map to its groups; `places` chooses problems of "locations" and "pyramid"."""
    if pooling == "locations":
        return [_locations(features) if places is None else _locations_at(features, *places)]
    if pooling == "pyramid":
        return [_pyramid(features) if places is None else _pyramid_at(features, places)]
    if pooling == "patches":
        return list(F.adaptive_avg_pool2d(features, 2).flatten(2).unbind(-1))
    if pooling == "mean":
        return [features.mean((-2, -1))]
    mean = features.mean((-2, -1), keepdim=True)
    variance = (features - mean).square().mean((-2, -1))
    return [mean.flatten(1), (variance + EPSILON).sqrt()]


def pool_maps(
    maps: Iterable[Float[Tensor, "B D h w"]],
    poolings: Sequence[Pooling],
    places: Places | None = None,
) -> tuple[Tensor, ...]:
    """Pool several maps, each by its own pooling; all groups of the first map come first.

    `places` has an entry for every group, None for all of its problems.
    """
    groups: list[Tensor] = []
    for features, pooling in zip(maps, poolings, strict=True):
        groups += pool_map(features, pooling, None if places is None else places[len(groups)])
    return tuple(groups)


def select_problems(groups: Sequence[Tensor], shapes: Sequence[GroupShape], places: Places) -> tuple[Tensor, ...]:
    """Return the chosen problems of groups [B, …] with these shapes that were computed as a whole.

    Example:
        >>> (chosen,) = select_problems([torch.arange(5.0).view(1, 5, 1)], [GroupShape(1, (4, 1))], [(
        ...     torch.tensor([1, 3]), torch.tensor([0])
        ... )])
        >>> chosen.flatten()
        tensor([1., 3., 4.])
    """
    return tuple(
        group if chosen is None else group.view(len(group), -1, shape.dimension).index_select(1, shape.numbers(chosen))
        for group, shape, chosen in zip(groups, shapes, places, strict=True)
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
        mean = F.avg_pool2d(features, shape)
        # E[a²] − E[a]² in the precision of the features is enough: deviations are not near 0 in a trained network.
        variance = (F.avg_pool2d(square, shape) - mean.square()).clamp_min(0)
        groups += [_locations(mean), _locations((variance + EPSILON).sqrt())]
    return torch.cat(groups, 1)


def _locations_at(features: Float[Tensor, "B D h w"], chosen: Tensor) -> Float[Tensor, "B k D"]:
    """Return the features of some locations."""
    return _locations(features).index_select(1, chosen)


def _pyramid_at(features: Float[Tensor, "B D h w"], places: GroupPlaces) -> Float[Tensor, "B k D"]:
    """Return the chosen problems of `_pyramid`."""
    height, width = features.shape[-2:]
    pixels = _locations(features)
    locations, *others = places
    groups = [pixels.index_select(1, locations)]
    for position, side in enumerate((*_patch_sides(height, width), None)):
        means, deviations = others[2 * position : 2 * position + 2]
        groups.append(_patches_at(pixels, means, side, width).mean(2))
        patches = _patches_at(pixels, deviations, side, width)
        variance = (patches.square().mean(2) - patches.mean(2).square()).clamp_min(0)
        groups.append((variance + EPSILON).sqrt())
    return torch.cat(groups, 1)


def _patches_at(
    pixels: Float[Tensor, "B hw D"], chosen: Tensor, side: int | None, width: int
) -> Float[Tensor, "B k side² D"]:
    """Return the pixels of some patches, which are numbered row by row; side None: the whole map is one patch."""
    if side is None:
        return pixels.unsqueeze(1).expand(-1, len(chosen), -1, -1)
    inside = torch.arange(side, device=chosen.device)
    corner = chosen // (width // side) * side * width + chosen % (width // side) * side
    numbers = corner.unsqueeze(-1) + (inside.unsqueeze(-1) * width + inside).flatten()
    return pixels.index_select(1, numbers.flatten()).unflatten(1, numbers.shape)


def _patch_sides(height: int, width: int) -> tuple[int, ...]:
    """Return the sides of patches that do not cover the map in one direction."""
    return tuple(side for side in PATCHES if side < min(height, width))


def _parts(height: int, width: int, pooling: Pooling) -> tuple[int, ...]:
    """Return the number of problems of every part of a group."""
    if pooling == "locations":
        return (height * width,)
    if pooling == "pyramid":
        patches = [(height // side) * (width // side) for side in _patch_sides(height, width)]
        return (height * width, *(count for each in (*patches, 1) for count in (each, each)))
    return (1,)
