"""Ratios of times, measured in one run.

Other processes disturb a clock, so the variants take turns: a window runs each of them a few times and keeps the
median; the time of a variant is its best window. What is reported is the ratio of two variants of one run.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median


def best_window_medians(
    variants: Mapping[str, Callable[[], object]], *, windows: int = 12, repeats: int = 7, warm_up: int = 3
) -> dict[str, float]:
    """Seconds of each variant: the best over `windows` of the median over `repeats`, variants taking turns."""
    for run in variants.values():
        for _ in range(warm_up):
            run()
    best = dict.fromkeys(variants, float("inf"))
    gc.disable()
    try:
        for _ in range(windows):
            for name, run in variants.items():
                run()  # the first call after another variant pays for its caches
                best[name] = min(best[name], median(_seconds(run) for _ in range(repeats)))
    finally:
        gc.enable()
    return best


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
