"""The overhead of a call on small tensors: one query, one thread, float64, the time column of `tab:baselines`.

`reweight` is compared with softmax and product for the standard estimator, and with the paper's listing for ABC.
`centroid` is compared with plain PyTorch code that computes the same from the points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.corrected_centroid import plain, two_lines
from benchmarks.results import Result
from benchmarks.timing import best_window_medians
from truedrift.centroids import centroid, estimator

SIZES = (8, 32, 128)
TAU = 0.5
CALLS = 20
TITLE = f"Overhead of calls: one query, one thread, D = 2, float64, n = {', '.join(map(str, SIZES))}"


def literal(x: Tensor, y: Tensor) -> Tensor:
    """Compute the ABC centroid of the points in plain PyTorch."""
    return two_lines(torch.softmax(-torch.cdist(x, y) / TAU, -1), y)


def measure() -> list[Result]:
    """Measure ratios to the literal code at every n."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [result for n in SIZES for result in _measure_at(n)]
    finally:
        torch.set_num_threads(threads)


def _measure_at(n: int) -> list[Result]:
    generator = torch.Generator().manual_seed(n)
    x, y = (torch.randn(rows, 2, generator=generator, dtype=torch.float64) for rows in (1, n))
    log_w = -torch.cdist(x, y) / TAU
    standard, abc = estimator("standard"), estimator("abc")
    variants = {
        "softmax": lambda: plain(log_w.softmax(-1), y),
        "standard": lambda: standard.reweight(log_w) @ y,
        "listing": lambda: two_lines(log_w.softmax(-1), y),
        "abc": lambda: abc.reweight(log_w) @ y,
        "literal": lambda: literal(x, y),
        "centroid": lambda: centroid(x, y, tau=TAU),
    }
    repeated = {name: lambda call=call: [call() for _ in range(CALLS)] for name, call in variants.items()}
    seconds = best_window_medians(repeated, windows=30, repeats=15)
    return [
        Result(f"standard.reweight / softmax, n = {n}", seconds["standard"] / seconds["softmax"], "×", "≤", 3),
        Result(f"abc.reweight / the paper's two lines, n = {n}", seconds["abc"] / seconds["listing"], "×", "≤", 1.3),
        Result(f"centroid / plain PyTorch, n = {n}", seconds["centroid"] / seconds["literal"], "×", "≤", 1.5),
        Result(f"centroid, n = {n}", seconds["centroid"] / CALLS * 1e6, "µs"),
    ]
