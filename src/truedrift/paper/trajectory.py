"""Distance against positives seen: smoothed curves of a variant with bands over seeds.

Each seed's distances are smoothed by a centered rolling mean (`seeds.rolling_mean`), over 7, 5, 3 and 3
evaluations at n = 8, 16, 32 and 64 as in the paper and over 3 at any other n; the curve is then the mean over seeds and
the band mean ± largest deviation, at the evaluations that all seeds of the variant have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from truedrift.grids.results import ImageGrid
from truedrift.paper.grid_tables import by_seed, total_positives
from truedrift.paper.seeds import distances, mean_and_deviation, rolling_mean

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
