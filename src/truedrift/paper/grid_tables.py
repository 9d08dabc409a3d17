"""Shared parts of the tables and figures of grids: statistics over seeds, rows of a comparison, trajectories.

Numbers of single runs, statistics over seeds, and sentences about paired differences.

| number              | is                                                                                             |
|---------------------|------------------------------------------------------------------------------------------------|
| last-5 average      | the mean distance of a run's last five evaluations, or of all if there are fewer               |
| best                | its smallest distance                                                                          |
| mean ± deviation    | mean over seeds and the largest |value − mean|, as the paper prints (`tab:main_results`)       |
| paired difference   | mean of d_s = b_s − a_s over the S seeds of both; limits mean ± t(0.975; S−1)·sd(d)/√S         |
| rolling mean        | of the evaluations k − h … k + h with 2h + 1 = window, those of them that exist                |
| first hit           | positives of a class seen at the first evaluation whose distance is at most a threshold        |

What the tables of image grids share: runs by variant, n and seed, rows that compare variants, and caption sentences.

The row of a variant has mean ± largest deviation over seeds of the last-5 average and of the best distance; the row of
a difference has the mean of the paired differences to the base, with its 95 % interval.

Distance against positives seen: smoothed curves of a variant with bands over seeds.

Each seed's distances are smoothed by a centered rolling mean (`rolling_mean`), over 7, 5, 3 and 3
evaluations at n = 8, 16, 32 and 64 as in the paper and over 3 at any other n; the curve is then the mean over seeds and
the band mean ± largest deviation, at the evaluations that all seeds of the variant have.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from scipy.special import stdtrit

from truedrift.errors import UserError
from truedrift.grids.results import ImageGrid, ImageRun
from truedrift.report.table import Cell, Interval, MeanCell, Number, Row, format_number

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


def runs_with_evaluations(record: ImageGrid) -> list[ImageRun]:
    """Return the runs with at least one evaluation.

    Raises:
        UserError: There is none.
    """
    runs = [run for run in record.runs if run.evaluations]
    if not runs:
        raise UserError(
            f"the record of {record.item} has {len(record.runs)} runs and no evaluation",
            "must have one evaluated run or more",
            f"run {record.provenance.command!r} to its end",
        )
    return runs


def sizes(record: ImageGrid) -> list[int]:
    """Return every n, from the smallest."""
    return sorted({run.n for run in runs_with_evaluations(record)})


def by_seed(record: ImageGrid, variant: str, n: int) -> dict[int, ImageRun]:
    """Return the evaluated runs of a variant at an n, by seed."""
    runs = (run for run in runs_with_evaluations(record) if run.variant == variant and run.n == n)
    return {run.seed: run for run in sorted(runs, key=lambda run: run.seed)}


def values_by_seed(record: ImageGrid, variant: str, n: int, of: Callable[[ImageRun], float]) -> dict[int, float]:
    """Return a number of each of these runs, by seed."""
    return {seed: of(run) for seed, run in by_seed(record, variant, n).items()}


def total_positives(record: ImageGrid, positives: float) -> float:
    """Return the positives over all classes from those per class."""
    return positives * record.classes


def one_or_all(values: Iterable[int]) -> Cell:
    """Return a cell with the number that all runs share, or with the different ones."""
    first, *others = sorted(set(values))
    return ", ".join(f"{value:,}" for value in (first, *others)) if others else Number(first, ",d")


def decimals(values: Iterable[float]) -> str:
    """Return the format that shows at least two decimals, and three digits of the smallest number."""
    smallest = min((abs(value) for value in values if value), default=1.0)
    return f".{min(6, max(2, 2 - math.floor(math.log10(smallest))))}f"


def protocol_line(record: ImageGrid) -> str:
    """Return one sentence on how the distance was measured."""
    of = record.protocol
    return (
        f"{of.distance_name} by {of.extractor} (sha256 {of.extractor_sha256[:12]}), {of.samples:,} samples against "
        f"{of.reference_count:,} images of {of.reference}, split {of.split}; evaluated every "
        f"{record.evaluate_every_epochs} epochs."
    )


def coverage_notes(record: ImageGrid) -> list[str]:
    """Return notes on runs without an evaluation and on runs with few."""
    runs = runs_with_evaluations(record)
    short = [len(run.evaluations) for run in runs if len(run.evaluations) < LAST]
    few = (
        f"{len(short)} of {len(runs)} runs have fewer than {LAST} evaluations (the fewest: {min(short, default=0)}); "
        f"their last-{LAST} average is that of all they have."
    )
    return [*unevaluated_note(record), *([few] if short else [])]


def unevaluated_note(record: ImageGrid) -> list[str]:
    """Return a note on runs without any evaluation, if there are some."""
    missing = len(record.runs) - len(runs_with_evaluations(record))
    return [f"Runs without an evaluation, left out: {missing}."] if missing else []


MEASURES = {"last-5 average": last_average, "best": best}
Printed = tuple[float, float | None]
"""Mean and deviation as the paper prints them; a single number has no deviation."""
Paper = Mapping[str, Sequence[Printed]]
"""Variant, or "difference" → printed value of each measure."""


@dataclass(frozen=True, kw_only=True)
class VariantComparison:
    """A variant and the base that it is compared with, both with their display names."""

    variant: str
    name: str
    base: str
    base_name: str

    def difference(self, record: ImageGrid, n: int, measure: str = "last-5 average") -> Paired:
        """Return variant − base over the seeds that both have."""
        of = MEASURES[measure]
        return paired(values_by_seed(record, self.base, n, of), values_by_seed(record, self.variant, n, of))

    def differences(self, record: ImageGrid, n: int) -> list[Paired]:
        """Return the difference of every measure."""
        return [self.difference(record, n, measure) for measure in MEASURES]

    def verdict(self, record: ImageGrid, n: int) -> str:
        """Return a sentence on the last-5 averages."""
        return difference_sentence(
            self.difference(record, n), self.name, self.base_name, number_format(record, "last-5 average")
        )


ABC_AGAINST_STANDARD = VariantComparison(variant="abc", name="ABC", base="standard", base_name="standard")


def number_format(record: ImageGrid, measure: str) -> str:
    """Return the number format of a measure in this grid."""
    return decimals(MEASURES[measure](run) for run in runs_with_evaluations(record))


def mean_cell(values: Sequence[float], spec: str, *, bold: bool = False, note: str = "") -> MeanCell:
    """Return the mean ± largest deviation; no value is a dash, and a single value has no deviation."""
    if not values:
        return MeanCell(None, None, 0, spec, note=note)
    mean, deviation = mean_and_deviation(values)
    return MeanCell(mean, deviation if len(values) > 1 else None, len(values), spec, bold, note)


def interval_cell(found: Paired, spec: str) -> Interval:
    """Return a cell with the mean difference and its limits."""
    return Interval(found.mean, found.low, found.high, found.pairs, spec)


def printed_cell(printed: Printed | None, note: str = "") -> MeanCell:
    """Return a cell with the printed value, or a dash."""
    mean, deviation = printed or (None, None)
    return MeanCell(mean, deviation, None, note=note)


def measure_cells(record: ImageGrid, variants: Sequence[str], n: int, measure: str) -> dict[str, MeanCell]:
    """Return one cell per variant, with the smallest mean in bold."""
    values = {variant: list(values_by_seed(record, variant, n, MEASURES[measure]).values()) for variant in variants}
    winner = smallest_mean({variant: mean_and_deviation(each)[0] for variant, each in values.items() if each})
    spec = number_format(record, measure)
    return {variant: mean_cell(each, spec, bold=variant == winner) for variant, each in values.items()}


def smallest_mean(means: Mapping[str, float]) -> str | None:
    """Return the name of the smallest of two or more means; None for a tie."""
    least = [name for name, mean in means.items() if mean == min(means.values())]
    return least[0] if len(means) > 1 and len(least) == 1 else None


def comparison_rows(
    record: ImageGrid, against: VariantComparison, n: int, paper: Paper, extra: Sequence[Cell] = ()
) -> list[Row]:
    """Return rows of base, variant and difference: n, name, seeds, `extra`, and each measure next to the paper's."""
    variants = {against.base: against.base_name, against.variant: against.name}
    cells = {measure: measure_cells(record, tuple(variants), n, measure) for measure in MEASURES}
    rows: list[Row] = [
        _row(
            (str(n), name, str(len(by_seed(record, variant, n))), *extra),
            [cells[measure][variant] for measure in MEASURES],
            paper.get(variant),
        )
        for variant, name in variants.items()
    ]
    found = against.differences(record, n)
    start = (str(n), f"{against.name} − {against.base_name}", str(found[0].pairs), *("" for _ in extra))
    intervals = [
        interval_cell(each, number_format(record, measure)) for each, measure in zip(found, MEASURES, strict=True)
    ]
    return [*rows, _row(start, intervals, paper.get("difference"))]


def _row(start: Sequence[Cell], cells: Sequence[Cell], paper: Sequence[Printed] | None) -> Row:
    printed = [printed_cell(each) for each in paper] if paper else [printed_cell(None) for _ in cells]
    return (*start, *(each for pair in zip(cells, printed, strict=True) for each in pair))


WINDOWS = {8: 7, 16: 5, 32: 3, 64: 3}
OTHER_WINDOW = 3
MARKERS = 10
"""Largest number of markers on a curve."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Smoothed distance by positives seen over all classes: mean and largest deviation over seeds."""

    seeds: int
    positives: tuple[float, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def smoothing_window(n: int) -> int:
    """Return the number of evaluations in a rolling mean at this n."""
    return WINDOWS.get(n, OTHER_WINDOW)


def trajectory(record: ImageGrid, variant: str, n: int) -> Trajectory:
    """Return the smoothed curve of a variant at an n; empty if it has no run."""
    smooth = []
    for run in by_seed(record, variant, n).values():
        values = rolling_mean(distances(run), smoothing_window(n))
        smooth.append({at.positives_seen: value for at, value in zip(run.evaluations, values, strict=True)})
    shared = sorted(set.intersection(*map(set, smooth))) if smooth else []
    bands = [mean_and_deviation([curve[at] for curve in smooth]) for at in shared]
    return Trajectory(
        seeds=len(smooth),
        positives=tuple(total_positives(record, at) for at in shared),
        mean=tuple(mean for mean, _ in bands),
        deviation=tuple(deviation for _, deviation in bands),
    )


def draw_trajectory(axes: Axes, curve: Trajectory, unit: float, **look: Any) -> None:
    """Draw the line with a few markers, and the band if there are two seeds or more."""
    across = [positives / unit for positives in curve.positives]
    low, high = ([m + sign * d for m, d in zip(curve.mean, curve.deviation, strict=True)] for sign in (-1, 1))
    if curve.seeds > 1:
        axes.fill_between(across, low, high, color=look["color"], alpha=0.25, linewidth=0)
    every = max(1, -(-len(across) // MARKERS))
    axes.plot(across, curve.mean, linewidth=1.2, markersize=3, markevery=every, **look)


def axis_unit(largest: float) -> tuple[float, str]:
    """Return the unit of the positives and its name."""
    return (1e6, "millions") if largest >= 1e6 else (1e3, "thousands")


def plain_logarithmic(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with plain numbers at 1, 2 and 5 of every decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
    axes.set_xlim(left=0)
