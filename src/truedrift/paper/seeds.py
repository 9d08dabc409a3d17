"""Numbers of single runs, statistics over seeds, and sentences about paired differences.

| number              | is                                                                                             |
|---------------------|------------------------------------------------------------------------------------------------|
| last-5 average      | the mean distance of a run's last five evaluations, or of all if there are fewer               |
| best                | its smallest distance                                                                          |
| mean ± deviation    | mean over seeds and the largest |value − mean|, as the paper prints (`tab:main_results`)       |
| paired difference   | mean of d_s = b_s − a_s over the S seeds of both; limits mean ± t(0.975; S−1)·sd(d)/√S         |
| rolling mean        | of the evaluations k − h … k + h with 2h + 1 = window, those of them that exist                |
| first hit           | positives of a class seen at the first evaluation whose distance is at most a threshold        |
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from truedrift.grids.results import ImageRun
from truedrift.report.table import format_number

LAST = 5
CONFIDENCE = 0.95


def distances(run: ImageRun) -> list[float]:
    """Return the distance of every evaluation, in order."""
    return [each.metrics.fid for each in run.evaluations]


def last_average(run: ImageRun) -> float:
    """Return the mean distance of the last five evaluations."""
    return statistics.fmean(distances(run)[-LAST:])


def best(run: ImageRun) -> float:
    """Return the smallest distance of all evaluations."""
    return min(distances(run))


def first_hit(run: ImageRun, threshold: float) -> int | None:
    """Return the positives per class seen when the distance is first at most the threshold, or None."""
    hits = (each.positives_seen for each in run.evaluations if each.metrics.fid <= threshold)
    return next(hits, None)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the largest deviation from it."""
    mean = statistics.fmean(values)
    return mean, max(abs(value - mean) for value in values)


def rolling_mean(values: Sequence[float], window: int) -> list[float]:
    """Return the centered rolling mean; at both ends the window is cut, so that no value is lost."""
    half = window // 2
    return [statistics.fmean(values[max(0, k - half) : k + half + 1]) for k in range(len(values))]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Mean of paired differences with the limits of its 95 % interval; None: too few pairs."""

    pairs: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def significant(self) -> bool:
        """Whether there is an interval and it excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def paired(base: Mapping[int, float], other: Mapping[int, float]) -> Paired:
    """Return the mean and the interval of `other` − `base` over the seeds that both have."""
    differences = [other[seed] - base[seed] for seed in base if seed in other]
    pairs = len(differences)
    mean = statistics.fmean(differences) if pairs else None
    if mean is None or pairs < 2:
        return Paired(pairs=pairs, mean=mean, low=None, high=None)
    half = float(stdtrit(pairs - 1, (1 + CONFIDENCE) / 2)) * statistics.stdev(differences) / math.sqrt(pairs)
    return Paired(pairs=pairs, mean=mean, low=mean - half, high=mean + half)


PERCENT = f"{CONFIDENCE * 100:.0f} %"


def difference_sentence(found: Paired, name: str, base: str, spec: str, *, lower: str = "lower", unit: str = "") -> str:
    """Return a sentence: which is lower and by how much, with the interval and the number of pairs."""
    if found.mean is None:
        return f"no seed has both {name} and {base}"
    ahead = f"{name if found.mean < 0 else base} {lower} by {format_number(abs(found.mean), spec)}{unit}"
    if found.low is None or found.high is None:
        outcome = ahead if found.mean else "no difference"
        return f"{outcome} in a single pair of seeds, which has no interval"
    if not found.significant:
        return (
            f"no significant difference ({name} − {base} is {format_number(found.mean, spec)}{unit}, {PERCENT} "
            f"interval {format_number(found.low, spec)} to {format_number(found.high, spec)}, {found.pairs} pairs)"
        )
    near, far = (format_number(limit, spec) for limit in sorted((abs(found.low), abs(found.high))))
    return f"{ahead} ({PERCENT} interval {near} to {far}, {found.pairs} pairs)"


def comparisons_note(intervals: Sequence[Paired]) -> str:
    """Return a note on the number of intervals, or on why there is none."""
    count = sum(found.low is not None for found in intervals)
    if not count:
        return "No two pairs of seeds anywhere: there is no interval, and no difference here is significant."
    return (
        f"In brackets: {PERCENT} t intervals of paired differences (the same seed on both sides). Comparisons: "
        f"{count}, not corrected for their number; if nothing differed, {(1 - CONFIDENCE) * count:.2g} of these "
        "intervals would be expected to exclude 0."
    )
