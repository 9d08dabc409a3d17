"""Times of several variants, measured in one run so that their ratios are meaningful.

Other processes disturb the clock, so the variants alternate. A window runs each variant a few times and takes the
median. The time of a variant is its smallest median over all windows.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median


def best_window_medians(
    variants: Mapping[str, Callable[[], object]], *, windows: int = 12, repeats: int = 7, warm_up: int = 3
) -> dict[str, float]:
    """Return the seconds of each variant: the smallest over `windows` of the median over `repeats`."""
    for run in variants.values():
        for _ in range(warm_up):
            run()
    best = dict.fromkeys(variants, float("inf"))
    gc.disable()
    try:
        for _ in range(windows):
            for name, run in variants.items():
                run()  # not timed: the caches hold data of the previous variant
                best[name] = min(best[name], median(_seconds(run) for _ in range(repeats)))
    finally:
        gc.enable()
    return best


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
