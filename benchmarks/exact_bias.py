"""Exact `fig:bias_loglog` at the paper's scale, against the paper's Monte-Carlo protocol in plain torch and in the
Monte-Carlo engine of truedrift.

Four modes, a pool of 10⁶ points, 200 queries, eight n, two temperatures, standard and ABC. The protocol draws 200,000
minibatches for each of them, 8.2·10¹⁰ kernel evaluations. A small part of it is timed and extrapolated.
"""

from __future__ import annotations

import subprocess
import sys
import time

import torch
from torch import Tensor

from benchmarks.results import Result
from benchmarks.timing import best_window_medians
from truedrift.bias.exact import exact_moments_by_estimator
from truedrift.bias.monte_carlo import monte_carlo
from truedrift.data.toys import FOUR_MODES

TITLE = "Exact bias: fig:bias_loglog, N = 10⁶, 200 queries, eight n, two temperatures, standard and ABC"
SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.1, 0.2)
QUERIES, TRIALS, POINTS = 200, 200_000, 1_000_000
SLICE_QUERIES, SLICE_TRIALS = 10, 500
ENGINE_QUERIES, ENGINE_TRIALS = 1, 200_000


def measure() -> list[Result]:
    """Measure the seconds of the exact figure, and how many times longer the protocol takes."""
    generator = torch.Generator().manual_seed(0)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (POINTS, QUERIES))
    exact_moments_by_estimator(x[:1], pool[:1000], tau=0.1, n=4)  # numba compiles here
    start = time.perf_counter()
    for tau in TEMPERATURES:
        exact_moments_by_estimator(x, pool, tau=tau, n=SIZES, estimators=("standard", "abc"))
    exact = time.perf_counter() - start
    eager, own = _evaluations_per_second(x, pool, generator)
    evaluations = len(TEMPERATURES) * QUERIES * TRIALS * sum(SIZES)
    return [
        Result("exact figure", exact, "s", "≤", 12),
        Result("protocol in eager torch (extrapolated) / exact figure", evaluations / eager / exact, "×", "≥", 500),
        Result(
            "protocol by the Monte-Carlo engine (extrapolated) / exact figure", evaluations / own / exact, "×", "≥", 50
        ),
        Result("Monte-Carlo engine / eager torch, kernel evaluations per second", own / eager, "×", "≥", 8),
        Result("eager torch, kernel evaluations", eager / 1e6, "million per second"),
        Result("Monte-Carlo engine, kernel evaluations", own / 1e6, "million per second"),
        Result("pool of 10⁷ points, exact at one query, eight n", _large_pool(), "s"),
        Result(
            "resident memory of 10⁶ trials / of 10⁴ trials", _resident(1_000_000) / _resident(10_000), "×", "≤", 1.05
        ),
    ]


def _evaluations_per_second(x: Tensor, pool: Tensor, generator: torch.Generator) -> tuple[float, float]:
    """Return kernel evaluations per second of eager torch and of the engine, over all sizes."""
    some, few = x[:SLICE_QUERIES], x[:ENGINE_QUERIES]
    of_n = {str(n): lambda n=n: _trials(some, pool, n, generator) for n in SIZES}
    engine = {
        "engine": lambda: monte_carlo(few, pool, tau=0.1, n=SIZES, trials=ENGINE_TRIALS, estimators=("standard", "abc"))
    }
    seconds = best_window_medians(of_n | engine, windows=3, repeats=1, warm_up=1)
    own = ENGINE_QUERIES * ENGINE_TRIALS * sum(SIZES) / seconds.pop("engine")
    return SLICE_QUERIES * SLICE_TRIALS * sum(SIZES) / sum(seconds.values()), own


def _large_pool() -> float:
    """Return the seconds of the exact moments at one query."""
    pool = FOUR_MODES.sample(10_000_000, torch.Generator().manual_seed(0), dtype=torch.float64)
    start = time.perf_counter()
    exact_moments_by_estimator(pool[:1], pool, tau=0.1, n=SIZES)
    return time.perf_counter() - start


def _resident(trials: int) -> int:
    """Return the peak resident set in kilobytes of a process that draws that many trials."""
    done = subprocess.run(
        [sys.executable, "-c", _RESIDENT.format(trials=trials)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


_RESIDENT = """
import torch
from pathlib import Path
from truedrift.bias.monte_carlo import monte_carlo
from truedrift.data import FOUR_MODES
pool = FOUR_MODES.sample(100_000, torch.Generator().manual_seed(0))
monte_carlo(pool[:1], pool, tau=0.1, n=64, trials={trials})
(line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(line.split()[1])  # getrusage would start at the peak of the parent process
"""


def _trials(x: Tensor, pool: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the means of both centroids over SLICE_TRIALS minibatches per query."""
    y = pool[torch.randint(len(pool), (len(x), SLICE_TRIALS, n), generator=generator)]
    alpha = (-(x[:, None, None] - y).norm(dim=-1) / TEMPERATURES[0]).softmax(-1).unsqueeze(-1)
    standard = (alpha * y).sum(-2)
    squared = alpha.square()
    corrected = (1 - squared.sum(-2)) * standard + (squared * y).sum(-2)
    return standard.mean(1), corrected.mean(1)
