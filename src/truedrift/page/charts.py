"""Charts of runs over training, drawn by matplotlib: the same drawing for the page, PNG and PDF.

The horizontal axis is the number of positives seen per class, as in the paper. A missing value is a gap in its line; a
point between two gaps is a mark. Long runs are thinned to at most `MOST_POINTS` points per line.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from truedrift.page.run_data import Evaluation, Run, step_of, to_number
from truedrift.report.figure import ABC, ABC2, MUTED, STANDARD, STRATIFIED, TARGET, style_axes

MOST_POINTS = 240
PROGRESS = "positives seen per class"
PALETTE = {
    "abc": (ABC, "#5cb3f5", "s"),
    "standard": (STANDARD, "#ff8781", "o"),
    "abc2": (ABC2, "#c99be6", "^"),
    "stratified": (STRATIFIED, "#f2b14c", "D"),
    "target": (TARGET, "#74c46f", "D"),
    "muted": (MUTED, "#a3abb5", "o"),
}
"""Name → color on white, color on black, and marker."""

Point = tuple[float, float | None]
Reader = Callable[[Mapping[str, Any]], Any]
"""Reads a value from one line of the telemetry."""


@dataclass(frozen=True, kw_only=True)
class LineStyle:
    """Color and marker of a run in every chart."""

    color: str
    marker: str


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart. The line of the negative side is dashed."""

    name: str
    style: LineStyle
    points: Sequence[Point]
    negative: bool = False
    mark_every_point: bool = False

    @property
    def values(self) -> list[float]:
        """The values that are not missing."""
        return [value for _, value in self.points if value is not None]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One panel: lines, and at most one dotted horizontal line at `level`."""

    title: str
    series: Sequence[Series]
    about: str = ""
    """Explanation of the quantity."""
    level: float | None = None
    from_zero: bool = False

    @property
    def lines(self) -> list[Series]:
        """The series that have a value."""
        return [series for series in self.series if series.values]


@dataclass(frozen=True, kw_only=True)
class Charts:
    """All charts of some runs."""

    runs: Sequence[Run]
    styles: Sequence[LineStyle]
    evaluation: Sequence[Chart]
    training: Sequence[Chart]
    gauge: Sequence[Chart]

    @classmethod
    def from_runs(cls, runs: Sequence[Run]) -> Charts:
        """Collect the series of these runs."""
        styles = line_styles(runs)
        return cls(
            runs=runs,
            styles=styles,
            evaluation=evaluation_charts(runs, styles),
            training=training_charts(runs, styles),
            gauge=gauge_charts(runs, styles),
        )

    @property
    def all(self) -> list[Chart]:
        """The charts that have a value."""
        return [chart for chart in (*self.evaluation, *self.training, *self.gauge) if chart.lines]


# Data


def line_styles(runs: Sequence[Run]) -> list[LineStyle]:
    """One style per run: the color of its estimator for the first run that has it, another color for the others."""
    free, names = list(PALETTE), []
    for position, run in enumerate(runs):
        estimator = run.config.objective.estimator_pos
        has_own_color = estimator == run.config.objective.estimator_neg and estimator in free
        name = estimator if has_own_color else _next_color(free, position)
        if name in free:
            free.remove(name)
        names.append(name)
    return [LineStyle(color=PALETTE[name][0], marker=PALETTE[name][2]) for name in names]


def _next_color(free: Sequence[str], position: int) -> str:
    """The next free color, those of the two main estimators last; any color if none is free."""
    if not free:
        return list(PALETTE)[position % len(PALETTE)]
    return next((name for name in reversed(free) if name not in ("standard", "abc")), free[0])


def evaluation_charts(runs: Sequence[Run], styles: Sequence[LineStyle]) -> list[Chart]:
    """Per distance: the distance itself, KID, precision, recall and Inception Score."""
    names = dict.fromkeys(each.distance_name for run in runs for each in run.evaluations)
    return [chart for name in names for chart in _distance_charts(name, runs, styles)]


def _distance_charts(distance: str, runs: Sequence[Run], styles: Sequence[LineStyle]) -> list[Chart]:
    titles = {
        "fid": f"{distance}, smaller is better",
        "kid": "KID, smaller is better",
        "precision": "Precision, larger is better",
        "recall": "Recall, larger is better",
        "inception_score": "Inception Score, larger is better",
    }
    return [
        Chart(
            title=title,
            series=[
                Series(name=run.name, style=style, points=evaluation_points(run, key, distance), mark_every_point=True)
                for run, style in zip(runs, styles, strict=True)
            ],
            from_zero=key not in ("fid", "kid"),
        )
        for key, title in titles.items()
    ]


def training_charts(runs: Sequence[Run], styles: Sequence[LineStyle]) -> list[Chart]:
    """Force per temperature, distance ratio, gradient norm and speed."""
    force_about = (
        "Force: root mean square of the raw drift field before normalization, averaged over feature scales. "
        "It falls until the noise of a batch dominates."
    )
    ratio_about = (
        "Distance ratio: distance between generated features divided by their distance to the data; near 1 in a "
        "healthy run, near 0 after a collapse."
    )

    def chart(title: str, about: str, reader: Callable[[Run], Reader], *, from_zero: bool) -> Chart:
        series = [
            Series(name=run.name, style=style, points=telemetry_points(run, reader(run)))
            for run, style in zip(runs, styles, strict=True)
        ]
        return Chart(title=title, about=about, series=series, from_zero=from_zero)

    def force_chart(tau: float) -> Chart:
        return chart(
            f"Force at τ = {tau:g}", force_about, lambda run: force_at(temperature_index(run, tau)), from_zero=False
        )

    return [
        *map(force_chart, temperatures(runs)),
        chart("Distance ratio", ratio_about, lambda _: lambda entry: entry.get("spread"), from_zero=True),
        chart(
            "Gradient norm",
            "Gradient norm: before clipping.",
            lambda _: lambda entry: entry.get("gradient_norm"),
            from_zero=False,
        ),
        chart(
            "Generated images per second",
            "Generated images per second: depends on the machine.",
            lambda _: images_per_second,
            from_zero=True,
        ),
    ]


GAUGE_QUANTITIES = {
    "n_eff": ("Effective references", "n_eff = 1/Σα², averaged over queries; the dotted line is n."),
    "dominated": ("Dominated queries", "share of queries for which one reference has more than half of the weight."),
    "correction": ("Weight moved", "½Σ|γ − α|, the share of weight that the estimator moves; 0 for standard."),
}
"""Field of the telemetry → title and explanation."""


def gauge_charts(runs: Sequence[Run], styles: Sequence[LineStyle]) -> list[Chart]:
    """One chart per quantity of the bias gauge and temperature, with both sides of every run."""
    sizes = {run.config.batch.n for run in runs}
    return [
        Chart(
            title=f"{title}, τ = {tau:g}",
            about=f"{title}: {about}",
            series=[
                Series(
                    name=f"{run.name}, {side} side",
                    style=style,
                    points=telemetry_points(run, item_at(f"{name}_{side[:3]}", temperature_index(run, tau))),
                    negative=side == "negative",
                )
                for run, style in zip(runs, styles, strict=True)
                for side in ("positive", "negative")
            ],
            level=float(min(sizes)) if name == "n_eff" and len(sizes) == 1 else None,
            from_zero=True,
        )
        for name, (title, about) in GAUGE_QUANTITIES.items()
        for tau in temperatures(runs)
    ]


def telemetry_points(run: Run, reader: Reader) -> list[Point]:
    """The values of all logged steps."""
    return thin_points([(positives_seen(run, entry), to_number(reader(entry))) for entry in run.telemetry])


def evaluation_points(run: Run, metric: str, distance_name: str) -> list[Point]:
    """The values of a metric in all evaluations with that distance."""

    def point(each: Evaluation) -> Point:
        return float(run.config.positives_seen(each.step)), to_number(each.metrics.get(metric))

    return thin_points([point(each) for each in run.evaluations if each.distance_name == distance_name])


def positives_seen(run: Run, entry: Mapping[str, Any]) -> float:
    """Positives seen per class at a logged step."""
    written = to_number(entry.get("positives_seen"))
    return float(run.config.positives_seen(step_of(entry) or 0)) if written is None else written


def thin_points(points: Sequence[Point]) -> list[Point]:
    """Sort by progress and keep at most `MOST_POINTS` points and the last."""
    points = sorted(points, key=lambda point: point[0])
    stride = -(-len(points) // MOST_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def item_at(name: str, position: int) -> Reader:
    """Reader of one item of a list, such as the value at one temperature."""

    def read(entry: Mapping[str, Any]) -> Any:
        values = entry.get(name)
        return values[position] if isinstance(values, list) and position < len(values) else None

    return read


def force_at(position: int) -> Reader:
    """Reader of the force at one temperature, averaged over scales; None if a scale is missing."""

    def read(entry: Mapping[str, Any]) -> float | None:
        rows = entry.get("force")
        scales = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
        values = [to_number(row[position]) for row in scales if position < len(row)]
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None

    return read


def images_per_second(entry: Mapping[str, Any]) -> Any:
    """Speed at a logged step."""
    timing = entry.get("timing")
    return timing.get("images_per_second") if isinstance(timing, dict) else None


def temperatures(runs: Sequence[Run]) -> list[float]:
    """The temperatures of all runs, in increasing order."""
    return sorted({tau for run in runs for tau in run.config.objective.temperatures})


def temperature_index(run: Run, tau: float) -> int:
    """Index of the temperature in the lists of the run; past their end if the run does not have it."""
    own = run.config.objective.temperatures
    return own.index(tau) if tau in own else len(own)


# Drawing

FIGURE_WIDTH, PANEL_HEIGHT, LINE_HEIGHT = 6.6, 1.6, 0.18  # inches
LETTER_WIDTH, LEGEND_LINE_WIDTH = 0.062, 0.55  # inches in the legend
LONGEST_NAME, LONGEST_TITLE_LINE = 48, 34  # letters
LOG_RATIO = 20.0
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""
DASHED, DOTTED = (0, (3, 1.6)), ":"
LINE: dict[str, Any] = {"linewidth": 1.1, "markersize": 3.4}
FONTS = ("STIXGeneral", "DejaVu Sans")
"""Fonts of the files and of the page."""
DARK = {light: dark for light, dark, _ in PALETTE.values()}
DARK_INK, DARK_FRAME = "#c9d0d8", "#333c46"


def plot_curves(charts: Charts) -> Figure | None:
    """Evaluations, then telemetry; None if nothing was logged."""
    return plot_figure([*charts.evaluation, *charts.training], run_legend(charts))


def plot_evaluation(charts: Charts) -> Figure | None:
    """Evaluations during training; None if there are none."""
    return plot_figure(charts.evaluation, run_legend(charts))


def plot_training(charts: Charts) -> Figure | None:
    """Telemetry; None if nothing was logged."""
    return plot_figure(charts.training, run_legend(charts))


def plot_gauge(charts: Charts) -> Figure | None:
    """The bias gauge, one row per quantity if the columns allow it; None if nothing was logged."""
    legend = [*run_legend(charts), _legend_line("positive side"), _legend_line("negative side", linestyle=DASHED)]
    if any(chart.level is not None for chart in charts.gauge):
        legend.append(_legend_line("n", linestyle=DOTTED))
    return plot_figure(charts.gauge, legend, columns=2 if len(temperatures(charts.runs)) in (2, 4) else 3)


def plot_figure(charts: Sequence[Chart], legend: Sequence[Line2D], *, columns: int = 3) -> Figure | None:
    """One panel per chart that has a value, below a common legend; None if no chart has a value."""
    shown = [chart for chart in charts if chart.lines]
    if not shown:
        return None
    # Size of the figure.
    columns = min(columns, len(shown))
    rows = math.ceil(len(shown) / columns)
    longest = max(len(str(line.get_label())) for line in legend)
    legend_columns = max(1, min(len(legend), int(FIGURE_WIDTH / (LEGEND_LINE_WIDTH + LETTER_WIDTH * longest))))
    height = PANEL_HEIGHT * rows + LINE_HEIGHT * (1 + math.ceil(len(legend) / legend_columns))
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    # Panels and legend.
    for k, chart in enumerate(shown):
        _plot_panel(figure.add_subplot(rows, columns, k + 1), chart)
    figure.supxlabel(PROGRESS, fontsize=8)
    figure.legend(handles=legend, loc="outside upper center", ncols=legend_columns, frameon=False, fontsize=8)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return figure


def run_legend(charts: Charts) -> list[Line2D]:
    """One line per run."""
    return [
        _legend_line(shorten_name(run.name), color=style.color, marker=style.marker)
        for run, style in zip(charts.runs, charts.styles, strict=True)
    ]


def _legend_line(name: str, **style: Any) -> Line2D:
    return Line2D([], [], label=name, **{"color": MUTED, **LINE, **style})


def _plot_panel(axes: Axes, chart: Chart) -> None:
    values = [value for series in chart.lines for value in series.values]
    if chart.level is not None:
        values.append(chart.level)
        axes.axhline(chart.level, color=MUTED, linestyle=DOTTED, clip_on=False, zorder=3, **LINE)
    for series in chart.lines:
        axes.plot(
            [x for x, _ in series.points],
            [math.nan if y is None else y for _, y in series.points],
            linestyle=DASHED if series.negative else "-",
            marker=series.style.marker,
            markevery=_marked_points(series),
            color=series.style.color,
            clip_on=False,
            zorder=3,
            **LINE,
        )
    low, high, is_log = axis_limits(values, from_zero=chart.from_zero)
    axes.set_yscale("log" if is_log else "linear")
    end = max(x for series in chart.lines for x, _ in series.points)
    axes.set(xlim=(0, end if end > 0 else 1), ylim=(low, high))
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
    subs = (1, 2, 5) if is_log and high / low < 1e3 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8) if is_log else MaxNLocator(5, steps=(1, 2, 5, 10)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(value)))
    style_axes(axes, across="", title=wrap_title(chart.title), size=8)
    axes.tick_params(left=False, bottom=False)  # the grid shows the places


def axis_limits(values: Sequence[float], *, from_zero: bool) -> tuple[float, float, bool]:
    """Limits of an axis that holds these values, and whether it is logarithmic."""
    low, high = min(values), max(values)
    if not from_zero and low > 0 and high / low > LOG_RATIO:
        return low / 1.2, high * 1.2, True
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    return (0.0 if from_zero and low == 0 else low - room), high + room, False


def _marked_points(series: Series) -> list[int]:
    """Positions of all points, or of the last and of those between two gaps."""
    known = [k for k, (_, value) in enumerate(series.points) if value is not None]
    return [k for k in known if series.mark_every_point or k == known[-1] or not {k - 1, k + 1} & set(known)]


def format_tick(value: float) -> str:
    """Label of a tick: 0.25, 1,200, 24k, 6.2M, 1e−5."""
    size = abs(value)
    if size < 1e-12 and size * 1e100 < 1:
        return "0"
    if size < 1e-3 or size >= 1e12:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+", "e").replace("-", "−")
    for unit, divisor, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= unit:
            return f"{value / divisor:.6g}{letter}".replace("-", "−")
    return f"{value:,.6g}".replace("-", "−")


@cache
def _known_letters() -> frozenset[int]:
    """Letters that both fonts have."""
    return frozenset.intersection(*(frozenset(get_font(findfont(font)).get_charmap()) for font in FONTS))


def replace_unknown_letters(text: str) -> str:
    """Replace letters that the fonts do not have by question marks."""
    return "".join(letter if letter.isprintable() and ord(letter) in _known_letters() else "?" for letter in text)


def shorten_name(name: str) -> str:
    """Keep both ends of a long name."""
    shown, half = replace_unknown_letters(name), (LONGEST_NAME - 1) // 2
    return shown if len(shown) <= LONGEST_NAME else f"{shown[:half]}…{shown[-half:]}"


def wrap_title(title: str) -> str:
    """Wrap a long title into at most three lines."""
    return "\n".join(wrap(replace_unknown_letters(title), LONGEST_TITLE_LINE, max_lines=3, placeholder=" …"))


# SVG


_INDENTATION = re.compile(rb"\s*\n\s*")
_SUPERFLUOUS = re.compile(rb' transform="rotate\(-0 [^"]*"| id="[a-z0-9.]+_[0-9]+"')
"""Rotations by 0 and names of groups: a fifth of the file."""


def figure_svgs(figure: Figure) -> tuple[bytes, bytes]:
    """The figure as SVG for a white and for a black background."""
    light = _save_svg(figure)
    figure.set_layout_engine("none")  # the dark version keeps the layout
    use_dark_colors(figure)
    return light, _save_svg(figure)


def _save_svg(figure: Figure) -> bytes:
    """Text stays text; the browser draws it in a sans-serif font."""
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "truedrift", "font.sans-serif": [FONTS[1]]}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _SUPERFLUOUS.sub(b"", _INDENTATION.sub(b"\n", file.getvalue()))


def use_dark_colors(figure: Figure) -> None:
    """Replace the colors of the figure by those for a black background."""
    for text in figure.findobj(Text):
        text.set_color(DARK_INK)
    for axes in figure.axes:
        axes.tick_params(which="both", color=DARK_FRAME, labelcolor=DARK_INK, grid_color=DARK_FRAME)
        for spine in axes.spines.values():
            spine.set_edgecolor(DARK_FRAME)
    legend_lines = [line for legend in figure.legends for line in legend.get_lines()]
    for line in [*legend_lines, *(line for axes in figure.axes for line in axes.lines)]:
        line.set_color(DARK[str(line.get_color())])
