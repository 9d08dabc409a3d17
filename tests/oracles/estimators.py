"""Every estimator with its properties: the parameters of the tests that run for all estimators.

Windows of references accept fewer masks and orders than other estimators. The M references consist of equal groups of
neighbors (`Kind.groups`), and every window is a union of groups. A mask must keep equally many references of each
group, and an order may reverse the groups and shuffle each of them. Other estimators have one group: any mask and any
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from truedrift.centroids import ABC, ABC2, BRSNIS, Bootstrap, Estimator, Jackknife, Standard, StratifiedABC, Windowed

M = 25
"""References per row: 5 groups of 5 for windows, and 3(n − 1) + 1 with n = 9, as BR-SNIS with 3 iterations needs."""


@dataclass(frozen=True)
class Kind:
    """How to construct the estimator for m references, and its properties."""

    make: Callable[[int], Estimator]
    bias_order: int
    draws: bool = False
    in_hull: bool = True
    corrects_nothing_at_equal_weights: bool = True
    groups: int = 1
    """The number of groups of references; M if every group is one reference, so that none may be masked."""


def alternating(m: int) -> StratifiedABC:
    """Two strata of different sizes: references 0, 3, 6, … and the rest."""
    return StratifiedABC((torch.arange(m) % 3 == 0).long())


def windows(estimator: Estimator, share: float) -> Callable[[int], Windowed]:
    """Windows of a share of the m references: blocks if 1/share is an integer, and a ring otherwise."""
    return lambda m: Windowed(estimator, max(1, round(share * m)))


def windows_without_one(estimator: Estimator) -> Callable[[int], Windowed]:
    """Windows of all references but one."""
    return lambda m: Windowed(estimator, max(1, m - 1))


KINDS = {
    "standard": Kind(lambda m: Standard(), bias_order=1),
    "abc": Kind(lambda m: ABC(), bias_order=2),
    "abc2": Kind(lambda m: ABC2(), bias_order=3),
    "stratified-abc": Kind(alternating, bias_order=2),
    "jackknife": Kind(lambda m: Jackknife(), bias_order=2, in_hull=False),
    "bootstrap": Kind(
        lambda m: Bootstrap(), bias_order=2, draws=True, in_hull=False, corrects_nothing_at_equal_weights=False
    ),
    "br-snis": Kind(lambda m: BRSNIS(iterations=3), bias_order=2, draws=True, corrects_nothing_at_equal_weights=False),
    "abc, windows of 5": Kind(windows(ABC(), 1 / 5), bias_order=2, groups=5),
    "abc2, windows of 10": Kind(windows(ABC2(), 2 / 5), bias_order=3, groups=5),
    "standard, windows of 24": Kind(windows_without_one(Standard()), bias_order=1, groups=M),
    "abc, windows of 24": Kind(windows_without_one(ABC()), bias_order=2, groups=M),
    "abc2, windows of 24": Kind(windows_without_one(ABC2()), bias_order=3, groups=M),
}
DETERMINISTIC = [name for name, kind in KINDS.items() if not kind.draws and kind.groups < M]
"""Estimators that do not draw and take masks."""
UNMASKED = [name for name, kind in KINDS.items() if kind.groups == M]
"""Estimators that do not draw and take no masks, except for all references of a row."""
ANY_MASK = [name for name in DETERMINISTIC if KINDS[name].groups == 1]
"""Estimators that do not draw and take every mask: all but windows."""
DRAWING = [name for name, kind in KINDS.items() if kind.draws]
HULL = [name for name, kind in KINDS.items() if kind.in_hull]


def random_mask(name: str, *leading: int, seed: int = 2, unused: int | None = None) -> Tensor:
    """Masks [..., M] that keep at least half of every group, equally many of each; all if nothing may be masked.

    Every row keeps another number. The reference `unused` is in no row.
    """
    generator = torch.Generator().manual_seed(seed)
    groups = KINDS[name].groups
    size = M // groups
    if size == 1:
        return torch.ones(*leading, M, dtype=torch.bool)
    priority = torch.rand(*leading, M, generator=generator)
    if unused is not None:
        priority[..., unused] = 2  # the last of its group
    place = priority.unflatten(-1, (groups, size)).argsort(-1).argsort(-1)
    kept = torch.randint((size + 1) // 2, size, (*leading, 1, 1), generator=generator)
    return (place < kept).flatten(-2)


def random_order(name: str) -> Tensor:
    """An order [M] of the references with which the weights must be ordered as well."""
    generator = torch.Generator().manual_seed(5)
    groups = KINDS[name].groups
    if groups == M:  # windows without one reference are all of that size
        return torch.randperm(M, generator=generator)
    size = M // groups
    return torch.cat([size * group + torch.randperm(size, generator=generator) for group in reversed(range(groups))])
