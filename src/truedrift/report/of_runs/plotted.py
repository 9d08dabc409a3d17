"""Charts of the page as a figure for print: a small panel each, with the page's axes; one legend above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from truedrift.report.frame import framed
from truedrift.report.of_runs.lettering import lines, shortened
from truedrift.report.page.chart import ACROSS, Chart, frame_of
from truedrift.report.page.charts import Charts
from truedrift.report.page.curves import temperatures
from truedrift.report.page.scale import short
from truedrift.report.page.series import Look, Point, Series
from truedrift.report.page.style import COLORS
from truedrift.report.palette import MUTED

WIDTH, PANEL_HEIGHT, LINE_HEIGHT = 6.6, 1.6, 0.18  # inches; a text width
LETTER, SAMPLE = 0.062, 0.55
"""Widths in the legend, in inches: of a letter, and of a line with the room around it."""
MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}
LINE: dict[str, Any] = {"linewidth": 1.1, "markersize": 3.4}
ABOVE_THE_FRAME: dict[str, Any] = {"clip_on": False, "zorder": 3}
DASHED, DOTTED = (0, (3, 1.6)), ":"


def curves(charts: Charts) -> Figure | None:
    """Evaluations, then training; None where nothing was logged."""
    return plotted([*charts.judged, *charts.trained], _runs(charts), columns=3)


def gauge(charts: Charts) -> Figure | None:
    """The bias gauge, quantities of one kind below each other; None where nothing was logged."""
    sides = [_sample("positive side"), _sample("negative side", linestyle=DASHED)]
    level = [_sample("n", linestyle=DOTTED)] if any(chart.level is not None for chart in charts.gauged) else []
    columns = 2 if len(temperatures(charts.runs)) in (2, 4) else 3
    return plotted(charts.gauged, [*_runs(charts), *sides, *level], columns=columns)


def plotted(charts: Sequence[Chart], legend: Sequence[Line2D], *, columns: int) -> Figure | None:
    """A panel a chart that has a value; None where none has."""
    shown = [chart for chart in charts if chart.shown]
    if not shown:
        return None
    columns = min(columns, len(shown))
    rows = math.ceil(len(shown) / columns)
    beside = _beside(legend)
    height = PANEL_HEIGHT * rows + LINE_HEIGHT * (1 + math.ceil(len(legend) / beside))
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    for k, chart in enumerate(shown):
        _panel(figure.add_subplot(rows, columns, k + 1), chart)
    figure.supxlabel(ACROSS, fontsize=8)
    told = figure.legend(handles=legend, loc="outside upper center", ncols=beside, frameon=False, fontsize=8)
    for text in told.get_texts():
        text.set_parse_math(False)
    return figure


def _beside(legend: Sequence[Line2D]) -> int:
    """How many of these stand beside each other in the width of the figure."""
    longest = max(len(str(line.get_label())) for line in legend)
    return max(1, min(len(legend), int(WIDTH / (SAMPLE + LETTER * longest))))


def _runs(charts: Charts) -> list[Line2D]:
    """A sample of every run's line."""
    return [_sample(shortened(run.name), **_look(look)) for run, look in zip(charts.runs, charts.looks, strict=True)]


def _sample(name: str, **look: Any) -> Line2D:
    return Line2D([], [], label=name, **{"color": MUTED, **LINE, **look})


def _look(look: Look) -> dict[str, Any]:
    return {"color": COLORS[look.color][0], "marker": MARKERS[look.shape]}


def _panel(axes: Axes, chart: Chart) -> None:
    frame = frame_of(chart)
    if chart.level is not None:
        axes.axhline(chart.level, color=MUTED, linestyle=DOTTED, **LINE, **ABOVE_THE_FRAME)
    for series in chart.shown:
        _line(axes, series)
    axes.set_yscale("log" if frame.up.logarithmic else "linear")
    axes.set(xlim=(frame.across.low, frame.across.high), ylim=(frame.up.low, frame.up.high))
    axes.set_xticks(frame.across.ticks, [short(tick) for tick in frame.across.ticks])
    axes.set_yticks(frame.up.ticks, [short(tick) for tick in frame.up.ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    framed(axes, across="", title=lines(chart.title), size=8)
    axes.title.set_parse_math(False)


def _line(axes: Axes, series: Series) -> None:
    """Gaps stay gaps; marks are where the page has them."""
    across = [x for x, _ in series.points]
    up = [math.nan if y is None else y for _, y in series.points]
    axes.plot(
        across,
        up,
        linestyle=DASHED if series.negative else "-",
        markevery=_marked(series.points, every=series.dotted),
        **LINE,
        **ABOVE_THE_FRAME,
        **_look(series.look),
    )


def _marked(points: Sequence[Point], *, every: bool) -> list[int]:
    """Positions of all points, or of the last and of those between two gaps, which have no line."""
    known = [k for k, (_, y) in enumerate(points) if y is not None]
    return [k for k in known if every or k == known[-1] or not {k - 1, k + 1} & set(known)]
