"""Statistics over seeds, as numbers, table cells and sentences.

| number              | is                                                                                     |
|---------------------|----------------------------------------------------------------------------------------|
| mean ± deviation    | mean and the largest |value − mean|, as the paper prints (`tab:main_results`)          |
| paired difference   | mean of d_s = b_s − a_s over the S seeds of both; limits mean ± t(0.975; S−1)·sd(d)/√S |
| Holm's correction   | the same with levels 1 − 0.05/m, 1 − 0.05/(m − 1), … in the order of the p-values      |
| rolling mean        | mean of the existing values among k − h … k + h, with 2h + 1 = window                  |
| slope               | d log(value) / d log n between the last two n                                          |
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.special import stdtr, stdtrit

from truedrift.report.table import Interval, MeanCell, format_number

CONFIDENCE = 0.95
PERCENT = f"{CONFIDENCE * 100:.0f} %"


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the largest deviation from it.

    Args:
        values: One or more numbers, such as the results of several seeds.

    Returns:
        (mean, max |value − mean|).

    Example:
        >>> mean_and_deviation((1.0, 2.0, 6.0))
        (3.0, 3.0)
    """
    mean = statistics.fmean(values)
    return mean, max(abs(value - mean) for value in values)


def mean_cell(values: Sequence[float], spec: str, *, bold: bool = False, note: str = "") -> MeanCell:
    """Return a table cell with the mean ± largest deviation.

    Args:
        values: The numbers. No number is a dash; a single number has no deviation.
        spec: Format of both numbers, such as ".2f".
        bold: Whether the cell is bold.
        note: Text after the numbers.

    Returns:
        The cell.

    Example:
        >>> mean_cell((1.0, 2.0, 6.0), ".1f").text()
        '3.0 ± 3.0'
    """
    if not values:
        return MeanCell(None, None, 0, spec, note=note)
    mean, deviation = mean_and_deviation(values)
    return MeanCell(mean, deviation if len(values) > 1 else None, len(values), spec, bold, note)


def rolling_mean(values: Sequence[float], window: int) -> list[float]:
    """Return the centered rolling mean.

    Args:
        values: The numbers, in order.
        window: An odd number 2h + 1 of values to average. Fewer are averaged at both ends.

    Returns:
        As many values as given; value k is the mean of the existing values k − h … k + h.

    Example:
        >>> rolling_mean((0.0, 3.0, 6.0, 6.0), 3)
        [1.5, 3.0, 5.0, 6.0]
    """
    half = window // 2
    return [statistics.fmean(values[max(0, k - half) : k + half + 1]) for k in range(len(values))]


def log_slope(n: Sequence[float], values: Sequence[float]) -> float:
    """Return d log(value) / d log n between the last two n.

    Example:
        >>> log_slope((4, 8, 16), (1.0, 0.5, 0.125))
        -2.0
    """
    return math.log(values[-1] / values[-2]) / math.log(n[-1] / n[-2])


def decimals(values: Iterable[float]) -> str:
    """Return the format that shows at least two decimals, and three digits of the smallest number."""
    smallest = min((abs(value) for value in values if value), default=1.0)
    return f".{min(6, max(2, 2 - math.floor(math.log10(smallest))))}f"


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Mean of paired differences with the limits of its 95 % interval; None: too few pairs."""

    pairs: int
    mean: float | None
    low: float | None = None
    high: float | None = None
    comparisons: int = 1
    """Number of comparisons that the interval is corrected for."""

    @property
    def significant(self) -> bool:
        """Whether there is an interval and it excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def cell(self, spec: str) -> Interval:
        """Return a table cell with the mean difference and its limits."""
        return Interval(self.mean, self.low, self.high, self.pairs, spec)

    def sentence(self, name: str, base: str, spec: str, *, lower: str = "lower", unit: str = "") -> str:
        """Return a sentence: which is lower and by how much, with the interval and the number of pairs."""
        if self.mean is None:
            return f"no seed has both {name} and {base}"
        ahead = f"{name if self.mean < 0 else base} {lower} by {format_number(abs(self.mean), spec)}{unit}"
        if self.low is None or self.high is None:
            outcome = ahead if self.mean else "no difference"
            return f"{outcome} in a single pair of seeds (no interval)"
        interval = f"{PERCENT} interval"
        if self.comparisons > 1:
            interval = f"{interval}, corrected for {self.comparisons} comparisons,"
        if not self.significant:
            return (
                f"no significant difference ({name} − {base} is {format_number(self.mean, spec)}{unit}, {interval} "
                f"{format_number(self.low, spec)} to {format_number(self.high, spec)}, {self.pairs} pairs)"
            )
        near, far = (format_number(limit, spec) for limit in sorted((abs(self.low), abs(self.high))))
        return f"{ahead} ({interval} {near} to {far}, {self.pairs} pairs)"


def paired(base: Mapping[int, float], other: Mapping[int, float]) -> Paired:
    """Return the mean and the interval of `other` − `base` over the seeds that both have.

    Args:
        base: Results by seed.
        other: Results by seed to compare with them.

    Returns:
        The number of pairs, the mean difference, and the limits of its 95 % t interval. Without pairs the mean is None;
        with fewer than two pairs the limits are None.

    Example:
        >>> paired({0: 3.0, 1: 5.0}, {1: 4.0, 2: 1.0})
        Paired(pairs=1, mean=-1.0, low=None, high=None, comparisons=1)
    """
    differences = [other[seed] - base[seed] for seed in base if seed in other]
    pairs = len(differences)
    mean = statistics.fmean(differences) if pairs else None
    if mean is None or pairs < 2:
        return Paired(pairs=pairs, mean=mean)
    half = float(stdtrit(pairs - 1, (1 + CONFIDENCE) / 2)) * statistics.stdev(differences) / math.sqrt(pairs)
    return Paired(pairs=pairs, mean=mean, low=mean - half, high=mean + half)


def holm_paired(pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]]) -> list[Paired]:
    """Return `paired` of several comparisons, with intervals that are corrected for their number (Holm).

    The comparisons are ordered by their p-values. The interval of the k-th of m has the level 1 − 0.05/(m − k + 1), so
    that all intervals that exclude 0 do so by mistake with a probability of at most 0.05 together. After the first that
    contains 0, the level no longer rises.

    Args:
        pairs: (base, other) results by seed, one pair per comparison.

    Returns:
        One difference per comparison, in the order given.

    Example:
        >>> alone = {0: 1.0, 1: 2.0, 2: 4.0}, {0: 0.5, 1: 1.4, 2: 3.5}
        >>> holm_paired([alone]) == [paired(*alone)]
        True
    """
    results = [paired(base, other) for base, other in pairs]
    # t statistic and two-sided p-value of every comparison that has an interval.
    t = {
        k: abs(found.mean) / half * float(stdtrit(found.pairs - 1, (1 + CONFIDENCE) / 2)) if half else math.inf
        for k, found in enumerate(results)
        if found.mean is not None and found.low is not None and (half := found.mean - found.low) is not None
    }
    p = {k: 2 * float(stdtr(results[k].pairs - 1, -value)) for k, value in t.items()}
    # Widen the intervals, the smallest p-value first.
    remaining = len(p)
    for k in sorted(p, key=p.__getitem__):
        found, level = results[k], 1 - (1 - CONFIDENCE) / remaining
        results[k] = _at_level(found, level, len(p))
        remaining -= int(results[k].significant)
    return results


def _at_level(found: Paired, level: float, comparisons: int) -> Paired:
    """Return the difference with the limits of an interval of another level."""
    assert found.mean is not None
    assert found.low is not None
    old, new = (float(stdtrit(found.pairs - 1, (1 + each) / 2)) for each in (CONFIDENCE, level))
    half = (found.mean - found.low) * new / old
    return replace(found, low=found.mean - half, high=found.mean + half, comparisons=comparisons)


def comparisons_note(intervals: Sequence[Paired]) -> str:
    """Return a note on the number of intervals, or on why there is none."""
    count = sum(found.low is not None for found in intervals)
    if not count:
        return "No comparison has two or more pairs of seeds. There are no intervals, and no difference is significant."
    return (
        f"In brackets: {PERCENT} t intervals of paired differences (the same seed on both sides). Number of "
        f"comparisons: {count}, without a correction for multiple comparisons. If there were no differences, "
        f"{(1 - CONFIDENCE) * count:.2g} of these intervals would be expected to exclude 0."
    )
