"""`fig:bias_loglog` exactly, at full paper scale, against the paper's Monte-Carlo protocol in straightforward torch.

Four modes, a pool of 10⁶ points, 200 queries, eight n, two temperatures, standard and ABC. The protocol draws 200 000
minibatches for each of them, 8.2·10¹⁰ kernel evaluations; a slice of it is timed and the rest extrapolated.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from benchmarks.results import Result
from benchmarks.timing import best_window_medians
from truedrift.bias import exact_moments_of_several
from truedrift.data import FOUR_MODES

TITLE = "Exact bias: fig:bias_loglog, N = 10⁶, 200 queries, eight n, two temperatures, standard and ABC"
SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.1, 0.2)
QUERIES, TRIALS, POINTS = 200, 200_000, 1_000_000
SLICE_QUERIES, SLICE_TRIALS = 10, 500


def measure() -> list[Result]:
    """Seconds of the exact figure, and how many times longer the protocol would take."""
    generator = torch.Generator().manual_seed(0)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (POINTS, QUERIES))
    exact_moments_of_several(x[:1], pool[:1000], tau=0.1, n=4)  # numba compiles
    start = time.perf_counter()
    for tau in TEMPERATURES:
        exact_moments_of_several(x, pool, tau=tau, n=SIZES, estimators=("standard", "abc"))
    exact = time.perf_counter() - start
    some = x[:SLICE_QUERIES]
    seconds = best_window_medians(
        {str(n): lambda n=n: _trials(some, pool, n, generator) for n in SIZES}, windows=3, repeats=3, warm_up=1
    )
    share = SLICE_QUERIES * SLICE_TRIALS / (QUERIES * TRIALS)
    protocol = len(TEMPERATURES) * sum(seconds.values()) / share
    rate = SLICE_QUERIES * SLICE_TRIALS * sum(SIZES) / sum(seconds.values())
    return [
        Result("exact figure", exact, "s", "≤", 12),
        Result("Monte-Carlo protocol in eager torch (extrapolated) / exact figure", protocol / exact, "×", "≥", 500),
        Result("eager torch, kernel evaluations", rate / 1e6, "million a second"),
    ]


def _trials(x: Tensor, pool: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The mean of both centroids over SLICE_TRIALS minibatches for each query."""
    y = pool[torch.randint(len(pool), (len(x), SLICE_TRIALS, n), generator=generator)]
    alpha = (-(x[:, None, None] - y).norm(dim=-1) / TEMPERATURES[0]).softmax(-1).unsqueeze(-1)
    standard = (alpha * y).sum(-2)
    squared = alpha.square()
    corrected = (1 - squared.sum(-2)) * standard + (squared * y).sum(-2)
    return standard.mean(1), corrected.mean(1)
