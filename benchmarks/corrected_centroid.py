"""γ @ Y against the plain centroid α @ Y and against the two lines of the paper's listing (`sec:abc_impl`)."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.results import Result
from benchmarks.timing import best_window_medians
from truedrift.centroids import abc_weights

TITLE = "Corrected centroid from given weights, B = 640, n = 64, D = 768"


def plain(alpha: Tensor, y: Tensor) -> Tensor:
    """Compute T = α @ Y."""
    return alpha @ y


def reweighted(alpha: Tensor, y: Tensor) -> Tensor:
    """Compute T = γ @ Y."""
    return abc_weights(alpha) @ y


def two_lines(alpha: Tensor, y: Tensor) -> Tensor:
    """Compute the centroid as in the listing of the paper, with a second product."""
    squared = alpha**2
    return (1 - squared.sum(-1, keepdim=True)) * (alpha @ y) + squared @ y


def measure() -> list[Result]:
    """Measure ratios to the plain centroid, eager and compiled."""
    generator = torch.Generator().manual_seed(0)
    alpha = torch.randn(640, 64, generator=generator).softmax(-1)
    y = torch.randn(64, 768, generator=generator)
    eager = {"plain": plain, "reweighted": reweighted, "two lines": two_lines}
    compiled = {f"{name}, compiled": torch.compile(function, fullgraph=True) for name, function in eager.items()}
    functions = eager | compiled
    seconds = best_window_medians(
        {name: lambda function=function: function(alpha, y) for name, function in functions.items()},
        windows=30,
        repeats=31,
    )
    ratio = {name: seconds[name] / seconds["plain"] for name in eager}
    ratio |= {name: seconds[name] / seconds["plain, compiled"] for name in compiled}
    return [
        Result("abc_weights(α) @ Y / α @ Y, eager", ratio["reweighted"], "×", "≤", 1.20),
        Result("abc_weights(α) @ Y / α @ Y, compiled", ratio["reweighted, compiled"], "×", "≤", 1.10),
        Result("the paper's two lines / α @ Y, eager", ratio["two lines"]),
        Result("the paper's two lines / α @ Y, compiled", ratio["two lines, compiled"]),
        Result("α @ Y, eager", seconds["plain"] * 1e3, "ms"),
    ]
