"""What the tables and figures of image grids share: numbers of runs, rows that compare variants, and trajectories.

| number              | is                                                                                             |
|---------------------|------------------------------------------------------------------------------------------------|
| last-5 average      | the mean distance of a run's last five evaluations, or of all if there are fewer               |
| best                | its smallest distance                                                                          |
| first hit           | positives per class seen at the first evaluation whose distance is at most a threshold         |

The row of a variant contains the last-5 average and the best distance, each as mean ± largest deviation over seeds. A
difference is the mean of paired differences to a base, with its 95 % interval (`truedrift.report.statistics`).

A trajectory is the distance against positives seen. The distances of each seed are smoothed by a centered rolling mean
over 7, 5, 3 and 3 evaluations at n = 8, 16, 32 and 64, as in the paper, and over 3 at any other n. The curve is the
mean over seeds, and the band is mean ± largest deviation, at the evaluations that all seeds of the variant have.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from truedrift.grids.record import ImageGrid, ImageRun
from truedrift.report.statistics import Paired, decimals, mean_and_deviation, mean_cell, paired, rolling_mean
from truedrift.report.table import Cell, MeanCell, Row

LAST = 5


# ---- Numbers of a run ----


def last_average(run: ImageRun) -> float:
    """Return the mean distance of the last five evaluations."""
    return statistics.fmean(run.distances[-LAST:])


def best(run: ImageRun) -> float:
    """Return the smallest distance of all evaluations."""
    return min(run.distances)


def first_hit(run: ImageRun, threshold: float) -> int | None:
    """Return the positives per class seen when the distance is first at most the threshold, or None."""
    hits = (each.positives_seen for each in run.evaluations if each.metrics.fid <= threshold)
    return next(hits, None)


LAST_AVERAGE = "last-5 average"
MEASURES = {LAST_AVERAGE: last_average, "best": best}


# ---- Runs of a record, all of which are complete ----


def sizes(record: ImageGrid) -> list[int]:
    """Return every n, from the smallest."""
    return sorted({run.n for run in record.runs})


def by_seed(record: ImageGrid, variant: str, n: int) -> dict[int, ImageRun]:
    """Return the runs of a variant at an n, by seed."""
    runs = (run for run in record.runs if run.variant == variant and run.n == n)
    return {run.seed: run for run in sorted(runs, key=lambda run: run.seed)}


def values_by_seed(record: ImageGrid, variant: str, n: int, of: Callable[[ImageRun], float]) -> dict[int, float]:
    """Return a number of each of these runs, by seed."""
    return {seed: of(run) for seed, run in by_seed(record, variant, n).items()}


def number_format(record: ImageGrid, measure: str = LAST_AVERAGE) -> str:
    """Return the number format of a measure in this grid."""
    return decimals(MEASURES[measure](run) for run in record.runs)


# ---- Sentences of captions and notes ----


def protocol_line(record: ImageGrid) -> str:
    """Return one sentence on how the distance was measured."""
    of = record.protocol
    return (
        f"{of.distance_name} by {of.extractor} (sha256 {of.extractor_sha256[:12]}), {of.samples:,} samples against "
        f"{of.reference_count:,} images of {of.reference}, split {of.split}; evaluated every "
        f"{record.evaluate_every_epochs} epochs."
    )


def short_runs_note(record: ImageGrid) -> list[str]:
    """Return a note on runs with few evaluations, if there are some."""
    short = [len(run.evaluations) for run in record.runs if len(run.evaluations) < LAST]
    if not short:
        return []
    return [
        f"{len(short)} of {len(record.runs)} runs have fewer than {LAST} evaluations (the fewest: {min(short)}); "
        f"their last-{LAST} average is the mean over all their evaluations."
    ]


# ---- Comparison of variants ----


@dataclass(frozen=True)
class VariantComparison:
    """A variant and the base that it is compared with, both with their display names."""

    variant: str
    name: str
    base: str
    base_name: str = "standard"

    def difference(self, record: ImageGrid, n: int, measure: str = LAST_AVERAGE) -> Paired:
        """Return variant − base over the seeds that both have."""
        of = MEASURES[measure]
        return paired(values_by_seed(record, self.base, n, of), values_by_seed(record, self.variant, n, of))

    def finding(self, record: ImageGrid, n: int) -> str:
        """Return a sentence on the last-5 averages."""
        return self.difference(record, n).sentence(self.name, self.base_name, number_format(record))


def all_differences(record: ImageGrid, n: int, comparisons: Sequence[VariantComparison]) -> list[Paired]:
    """Return the differences of every comparison in every measure."""
    return [each.difference(record, n, measure) for each in comparisons for measure in MEASURES]


def measure_columns(record: ImageGrid, second: str) -> list[str]:
    """Return two column names per measure: the measure itself, and the measure with the suffix `second`."""
    name = record.protocol.distance_name
    return [column for measure in MEASURES for column in (f"{measure} {name}", f"{measure}{second}")]


def measure_cells(record: ImageGrid, variants: Sequence[str], n: int, measure: str) -> dict[str, MeanCell]:
    """Return one cell per variant; the smallest mean is bold, unless there is a tie."""
    values = {variant: list(values_by_seed(record, variant, n, MEASURES[measure]).values()) for variant in variants}
    means = {variant: statistics.fmean(each) for variant, each in values.items()}
    least = [variant for variant, mean in means.items() if mean == min(means.values())]
    spec = number_format(record, measure)
    return {variant: mean_cell(each, spec, bold=least == [variant]) for variant, each in values.items()}


def difference_rows(
    record: ImageGrid, n: int, starts: Mapping[str, Sequence[str]], comparisons: Sequence[VariantComparison]
) -> list[Row]:
    """Return one row per variant: its first cells, the number of seeds, and each measure with its difference.

    Args:
        record: The grid.
        n: The number of references.
        starts: Variant → its first cells.
        comparisons: The comparison of each variant that has one.
    """
    by_variant = {each.variant: each for each in comparisons}
    cells = {measure: measure_cells(record, tuple(starts), n, measure) for measure in MEASURES}
    rows: list[Row] = []
    for variant, start in starts.items():
        row: list[Cell] = [*start, str(len(by_seed(record, variant, n)))]
        for measure in MEASURES:
            against = by_variant.get(variant)
            spec = number_format(record, measure)
            row += [cells[measure][variant], against.difference(record, n, measure).cell(spec) if against else ""]
        rows.append(row)
    return rows


# ---- Trajectories ----

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
    """Return the smoothed curve of a variant at an n."""
    smooth = []
    for run in by_seed(record, variant, n).values():
        values = rolling_mean(run.distances, smoothing_window(n))
        smooth.append({at.positives_seen: value for at, value in zip(run.evaluations, values, strict=True)})
    shared = sorted(set.intersection(*map(set, smooth)))
    bands = [mean_and_deviation([curve[at] for curve in smooth]) for at in shared]
    return Trajectory(
        seeds=len(smooth),
        positives=tuple(at * record.classes for at in shared),
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
