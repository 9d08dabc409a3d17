"""Every estimator with its properties: the parameters of the tests that run for all estimators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from truedrift.centroids import ABC, ABC2, BRSNIS, Bootstrap, Estimator, Jackknife, Standard, StratifiedABC

M = 13
"""References per row: 3(n − 1) + 1 with n = 5, as BR-SNIS with 3 iterations needs."""


@dataclass(frozen=True)
class Kind:
    """How to construct the estimator for m references, and its properties."""

    make: Callable[[int], Estimator]
    bias_order: int
    draws: bool = False
    in_hull: bool = True
    corrects_nothing_at_equal_weights: bool = True


def alternating(m: int) -> StratifiedABC:
    """Two strata of different sizes: references 0, 3, 6, … and the rest."""
    return StratifiedABC((torch.arange(m) % 3 == 0).long())


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
}
DETERMINISTIC = [name for name, kind in KINDS.items() if not kind.draws]
DRAWING = [name for name, kind in KINDS.items() if kind.draws]
HULL = [name for name, kind in KINDS.items() if kind.in_hull]
