"""Operators that field and loss dispatch, forward and backward, counted with the profiler.

On a GPU the cost of a step of this size depends on the number of launches, not on the arithmetic. The number must not
grow with classes and scales, and must grow little with the correction. An operator counts once if the code or autograd
calls it; "including nested" also counts the operators that it calls, such as views and allocations. All groups form
one block, as on a GPU. There, distances are computed in float64 without inspecting them, with a few other operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.results import Result
from truedrift.encoders.base import gradient_weights
from truedrift.objective import gram
from truedrift.training.config import ObjectiveOptions
from truedrift.training.objective import Objective

TITLE = "Operators dispatched by field and loss with gradient, 1 to 100 classes × 1 to 8 scales, n = 8, D = 64"
CLASSES = (1, 10, 100)
SCALES = (1, 4, 8)
ESTIMATORS = {"standard": "standard", "ABC": "abc", "ABC-2": "abc2"}
FEATURE_SCALES = ("standardize-l2", "mean-distance")
N, D = 8, 64
ADDED = 8
"""Number of operators that ABC may add."""


class Count(NamedTuple):
    """Numbers of operators: called by the code, and including nested ones."""

    called: int
    all: int


def measure() -> list[Result]:
    """Count for both paths of the loss: the Gram path, as for CIFAR-10, and the general one, as for digits."""
    with patch.object(gram, "BLOCK_ELEMENTS", 1 << 40):
        return [result for feature_scale in FEATURE_SCALES for result in _count_path(feature_scale)]


def _count_path(feature_scale: str) -> list[Result]:
    grid = {
        name: [count(classes, scales, estimator, feature_scale) for classes in CLASSES for scales in SCALES]
        for name, estimator in ESTIMATORS.items()
    }
    most = {name: max(counts) for name, counts in grid.items()}
    added = partial(Result, unit="operators", direction="≤", bound=ADDED)
    return [
        *(
            Result(f"most / fewest over the grid, {name}, {feature_scale}", _largest_ratio(counts), "×", "≤", 1)
            for name, counts in grid.items()
        ),
        Result(f"standard, {feature_scale}", most["standard"].called, "operators"),
        added(f"ABC − standard, {feature_scale}", most["ABC"].called - most["standard"].called),
        Result(f"ABC-2 − standard, {feature_scale}", most["ABC-2"].called - most["standard"].called, "operators"),
        Result(f"standard, including nested, {feature_scale}", most["standard"].all, "operators"),
        Result(
            f"ABC − standard, including nested, {feature_scale}", most["ABC"].all - most["standard"].all, "operators"
        ),
    ]


def _largest_ratio(counts: list[Count]) -> float:
    called = [each.called for each in counts]
    return max(called) / min(called)


def count(classes: int, scales: int, estimator: str, feature_scale: str) -> Count:
    """Count the operators of one call of the objective, on features that are not close to each other."""
    generator = torch.Generator().manual_seed(0)
    gen, pos = (torch.randn(scales, classes, N, D, generator=generator) for _ in range(2))
    options = ObjectiveOptions(estimator_pos=estimator, estimator_neg=estimator, feature_scale=feature_scale)
    objective = Objective(options, gradient_weights([D] * scales, feature_scale))
    return count_operators(partial(objective, gen, pos))


def count_operators(call: Callable[[], object]) -> Count:
    """Count the operators of the second call."""
    call()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()
    operators = [event for event in recorded.events() if _is_operator(event)]
    return Count(sum(not _is_operator(event.cpu_parent) for event in operators), len(operators))


def _is_operator(event: object) -> bool:
    return event is not None and event.name.startswith("aten::")
