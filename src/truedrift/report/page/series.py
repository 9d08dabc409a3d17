"""Numbers of runs along their training: what becomes a line in a chart.

Progress is positives seen of each class, as in the paper. A number that is missing or not finite is a gap. Of long runs
every k-th logged step is taken, and the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from truedrift.report.page.run_files import Evaluation, Run, number, step_of
from truedrift.report.page.style import COLORS

MOST_POINTS = 240
SHAPES = {
    "abc": "square",
    "standard": "circle",
    "abc2": "triangle",
    "stratified": "diamond",
    "target": "diamond",
    "muted": "circle",
}
"""Color → mark, as in the paper's figures where it has one."""

Point = tuple[float, float | None]


@dataclass(frozen=True, kw_only=True)
class Look:
    """How the line of a run looks, in every chart: a class of the style sheet and a mark at its end."""

    color: str
    shape: str


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line. `negative` ones are dashed."""

    name: str
    look: Look
    points: Sequence[Point]
    negative: bool = False
    dotted: bool = False
    """Every point has a mark: evaluations are few."""


def looks(runs: Sequence[Run]) -> list[Look]:
    """The estimator's color in the paper for the first run that has it, the next free one for the others."""
    free, taken = list(COLORS), []
    for position, run in enumerate(runs):
        wanted = run.config.objective.estimator_pos
        both = wanted == run.config.objective.estimator_neg
        color = wanted if both and wanted in free else _next(free, position)
        if color in free:
            free.remove(color)
        taken.append(Look(color=color, shape=SHAPES[color]))
    return taken


def _next(free: Sequence[str], position: int) -> str:
    """Colors of estimators are given to others last."""
    others = [name for name in reversed(free) if name not in ("standard", "abc")]
    return (others or list(free) or list(COLORS))[0 if free else position % len(COLORS)]


def of_telemetry(run: Run, value: Callable[[Mapping[str, Any]], Any]) -> list[Point]:
    """What `value` finds in every logged step."""
    points = [(seen(run, entry), number(value(entry))) for entry in run.telemetry]
    return thinned(_forward(points))


def of_evaluations(run: Run, value: Callable[[Evaluation], Any], distance_name: str) -> list[Point]:
    """What `value` finds in every evaluation by that distance."""
    chosen = (each for each in run.evaluations if each.distance_name == distance_name)
    return thinned(_forward([(float(run.config.positives_seen(each.step)), number(value(each))) for each in chosen]))


def seen(run: Run, entry: Mapping[str, Any]) -> float:
    """Positives of a class until that line."""
    written = number(entry.get("positives_seen"))
    return float(run.config.positives_seen(step_of(entry) or 0)) if written is None else written


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS of them and the last."""
    every = -(-len(points) // MOST_POINTS)
    return list(points) if every <= 1 else [*points[:-1:every], points[-1]]


def _forward(points: Sequence[Point]) -> list[Point]:
    """In the order of progress: a file from elsewhere may have any."""
    ordered = all(before[0] <= after[0] for before, after in pairwise(points))
    return list(points) if ordered else sorted(points, key=lambda point: point[0])


def entry_at(name: str, position: int) -> Callable[[Mapping[str, Any]], Any]:
    """Reads one entry of a list, one a temperature."""

    def read(entry: Mapping[str, Any]) -> Any:
        values = entry.get(name)
        return values[position] if isinstance(values, list) and position < len(values) else None

    return read
