"""Charts of runs over training, drawn by matplotlib: the same drawing for the page, PNG and PDF.

The horizontal axis is the number of positives seen per class, as in the paper. A missing value is a gap in its line; a
point between two gaps is a mark. Long runs are thinned to at most `MOST_POINTS` points per line.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
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

from truedrift.page.run_data import Run
from truedrift.page.run_log import SIDES, SMALLEST, number_at
from truedrift.report.figure import ABC, ABC2, FRAME, INK, MUTED, STANDARD, STRATIFIED, TARGET, fix_layout, style_axes

MOST_POINTS = 240
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
Reader = Callable[[Run, Mapping[str, Any]], float | None]
"""Reads a number of a run from one line of its telemetry."""
LineStyle = tuple[str, str]
"""Color and marker of a run in every chart."""


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
    """One panel: lines, and at most one dotted horizontal line at `level`, which the legend calls `level_name`."""

    title: str
    series: Sequence[Series]
    about: str = ""
    """Explanation of the quantity."""
    level: float | None = None
    level_name: str = "n"
    from_zero: bool = False


# Data

TITLES = {
    "fid": "{distance}, smaller is better",
    "kid": "KID, smaller is better",
    "precision": "Precision, larger is better",
    "recall": "Recall, larger is better",
    "inception_score": "Inception Score, larger is better",
}
"""Field of the metrics → title."""

ENERGY_ABOUT = (
    "Energy distance between generated and real features, 2 E d(x, y) − E d(x, x′) − E d(y, y′), in units of the mean "
    "distance, averaged over feature scales and over the steps since the last log. It falls during training and is 0 "
    "in expectation where both have the same distribution. The dotted line is the noise: two standard errors of the "
    "last value. Below it, a value cannot be told from 0."
)
FORCE_ABOUT = (
    "Force: root mean square of the raw drift field before normalization, averaged over feature scales. "
    "It falls until the noise of a batch dominates."
)
RATIO_ABOUT = (
    "distance between generated features divided by their distance to the data; near 1 in a normal run, near 0 after "
    "a collapse."
)
TELEMETRY: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "Distance ratio": (("spread",), RATIO_ABOUT, True),
    "Gradient norm": (("gradient_norm",), "before clipping.", False),
    "Generated images per second": (("timing", "images_per_second"), "depends on the machine.", True),
}
"""Title → path in a line of the telemetry, explanation, and whether the axis begins at 0."""

GAUGE = {
    "n_eff": (
        "Effective references",
        "n_eff = 1/Σα², averaged over queries and windows; the dotted line is the size of a centroid.",
    ),
    "dominated": ("Dominated queries", "share of queries for which one reference has more than half of the weight."),
    "correction": ("Weight moved", "½Σ|γ − α|, the share of weight that the estimator moves; 0 for standard."),
}
"""Field of the telemetry → title and explanation."""


def energy_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the chart of the energy distance, the number that falls during training.

    Args:
        runs: The runs to draw, at most 6, which have one color each.

    Returns:
        One chart, with the noise level of the noisiest run; none if no run has logged the energy distance.
    """
    errors = [mean_over_scales("energy_error", run, run.last) for run in runs]
    known = [error for error in errors if error is not None]
    return _keep_values(
        [
            Chart(
                title="Energy distance to the data",
                about=ENERGY_ABOUT,
                series=[
                    Series(
                        name=run.name, style=style, points=_telemetry_points(run, partial(mean_over_scales, "energy"))
                    )
                    for run, style in zip(runs, line_styles(runs), strict=True)
                ],
                level=2 * max(known) if known else None,
                level_name="noise (two standard errors)",
            )
        ]
    )


def evaluation_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the charts of the evaluations during training.

    Args:
        runs: The runs to draw, at most 6, which have one color each.

    Returns:
        For every kind of distance, one chart each of the distance, KID, precision, recall and Inception Score. Charts
        without values are left out.
    """
    distances = dict.fromkeys(each.protocol.distance_name for run in runs for each in run.evaluations)

    def points(run: Run, distance: str, metric: str) -> list[Point]:
        shown = [each for each in run.evaluations if each.protocol.distance_name == distance]
        seen = [run.config.positives_seen(each.step or 0, len(run.classes)) for each in shown]
        return thin_points([(x, number_at(vars(each.metrics), metric)) for x, each in zip(seen, shown, strict=True)])

    return _keep_values(
        Chart(
            title=title.format(distance=distance),
            series=[
                Series(name=run.name, style=style, points=points(run, distance, metric), mark_every_point=True)
                for run, style in zip(runs, line_styles(runs), strict=True)
            ],
            from_zero=metric not in ("fid", "kid"),
        )
        for distance in distances
        for metric, title in TITLES.items()
    )


def training_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the charts of the telemetry.

    Args:
        runs: The runs to draw, at most 6, which have one color each.

    Returns:
        One chart of the force per temperature, then distance ratio, gradient norm and images per second. Charts without
        values are left out.
    """

    def chart(title: str, about: str, read: Reader, *, from_zero: bool = False) -> Chart:
        series = [
            Series(name=run.name, style=style, points=_telemetry_points(run, read))
            for run, style in zip(runs, line_styles(runs), strict=True)
        ]
        return Chart(title=title, about=about, series=series, from_zero=from_zero)

    forces = [chart(f"Force at τ = {tau:g}", FORCE_ABOUT, partial(mean_force, tau)) for tau in temperatures(runs)]
    others = [
        chart(title, f"{title}: {about}", partial(_telemetry_number, path), from_zero=from_zero)
        for title, (path, about, from_zero) in TELEMETRY.items()
    ]
    return _keep_values([*forces, *others])


def gauge_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the charts of the bias indicators.

    Args:
        runs: The runs to draw, at most 6, which have one color each.

    Returns:
        One chart per indicator (n_eff, dominated queries, moved weight) and temperature, with the positive and the
        negative side of every run. Charts without values are left out.
    """
    sizes = {run.config.references("positive") for run in runs}
    return _keep_values(
        Chart(
            title=f"{title}, τ = {tau:g}",
            about=f"{title}: {about}",
            series=[
                Series(
                    name=f"{run.name}, {side} side",
                    style=style,
                    points=_telemetry_points(run, partial(gauge_number, name, side, tau)),
                    negative=side == "negative",
                )
                for run, style in zip(runs, line_styles(runs), strict=True)
                for side in SIDES
            ],
            level=float(min(sizes)) if name == "n_eff" and len(sizes) == 1 else None,
            from_zero=True,
        )
        for name, (title, about) in GAUGE.items()
        for tau in temperatures(runs)
    )


def _keep_values(charts: Iterable[Chart]) -> list[Chart]:
    """Drop series without values, and charts without series."""
    kept = (replace(chart, series=[each for each in chart.series if each.values]) for chart in charts)
    return [chart for chart in kept if chart.series]


def line_styles(runs: Sequence[Run]) -> list[LineStyle]:
    """Return one style per run: that of its estimator for the first run that has it, another one for the others."""
    free, styles = dict(PALETTE), []
    for run in runs:
        positive, negative = run.config.objective.estimator_pos, run.config.objective.estimator_neg
        others = [name for name in reversed(free) if name not in ("standard", "abc")] or list(free)
        color, _, marker = free.pop(positive if positive == negative and positive in free else others[0])
        styles.append((color, marker))
    return styles


def _telemetry_points(run: Run, read: Reader) -> list[Point]:
    return thin_points([(number_at(entry, "positives_seen") or 0.0, read(run, entry)) for entry in run.telemetry])


def thin_points(points: Sequence[Point]) -> list[Point]:
    """Keep at most `MOST_POINTS` points and the last."""
    stride = max(1, -(-len(points) // MOST_POINTS))
    return [*points[:-1:stride], *points[-1:]]


def _telemetry_number(path: tuple[str, ...], run: Run, entry: Mapping[str, Any]) -> float | None:
    return number_at(entry, *path)


def gauge_number(name: str, side: str, tau: float, run: Run, entry: Mapping[str, Any]) -> float | None:
    """Return a bias indicator at one temperature and side of a logged step."""
    return number_at(entry, f"{name}_{side[:3]}", temperature_index(run, tau))


def mean_over_scales(name: str, run: Run, entry: Mapping[str, Any]) -> float | None:
    """Return a number that is logged per scale, averaged over scales; None if that of a scale is missing."""
    scales = entry.get(name)
    return _mean_of_known([number_at(scales, s) for s in range(len(scales))] if isinstance(scales, list) else [])


def mean_force(tau: float, run: Run, entry: Mapping[str, Any]) -> float | None:
    """Return the force at one temperature, averaged over scales; None if that of a scale is missing."""
    scales = entry.get("force")
    forces = [number_at(scale, temperature_index(run, tau)) for scale in scales] if isinstance(scales, list) else []
    return _mean_of_known(forces)


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if there is no value or one is missing."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def temperatures(runs: Sequence[Run]) -> list[float]:
    """Return the temperatures of all runs, in increasing order."""
    return sorted({tau for run in runs for tau in run.config.objective.temperatures})


def temperature_index(run: Run, tau: float) -> int:
    """Return the index of the temperature in the lists of the run; past their end if the run does not have it."""
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


def plot_charts(runs: Sequence[Run], charts: Sequence[Chart]) -> Figure:
    """Plot one panel per chart, below a legend of the runs.

    Args:
        runs: The runs that the charts were made from, for the legend.
        charts: One or more charts, each with at least one value.

    Returns:
        A figure 6.6 inches wide, in two or three columns if there are enough charts.
    """
    # Entries of the legend.
    legend = [
        _legend_line(shorten_name(run.name), color=color, marker=marker)
        for run, (color, marker) in zip(runs, line_styles(runs), strict=True)
    ]
    has_sides = any(series.negative for chart in charts for series in chart.series)
    if has_sides:
        legend += [_legend_line("positive side"), _legend_line("negative side", linestyle=DASHED)]
    levels = dict.fromkeys(chart.level_name for chart in charts if chart.level is not None)
    legend += [_legend_line(name, linestyle=DOTTED) for name in levels]
    # Size of the figure. Charts of both sides have one row per quantity if the columns allow it.
    columns = min(2 if has_sides and len(temperatures(runs)) in (2, 4) else 3, len(charts))
    rows = math.ceil(len(charts) / columns)
    longest = max(len(str(line.get_label())) for line in legend)
    legend_columns = max(1, min(len(legend), int(FIGURE_WIDTH / (LEGEND_LINE_WIDTH + LETTER_WIDTH * longest))))
    height = PANEL_HEIGHT * rows + LINE_HEIGHT * (1 + math.ceil(len(legend) / legend_columns))
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    # Panels and legend. A name from a file may contain a dollar sign, which is no formula.
    with rc_context({"text.parse_math": False}):
        for k, chart in enumerate(charts):
            _plot_panel(figure.add_subplot(rows, columns, k + 1), chart)
        figure.supxlabel("positives seen per class", fontsize=8)
        figure.legend(handles=legend, loc="outside upper center", ncols=legend_columns, frameon=False, fontsize=8)
    return figure


def _legend_line(name: str, **style: Any) -> Line2D:
    return Line2D([], [], label=name, **{"color": MUTED, **LINE, **style})


def _plot_panel(axes: Axes, chart: Chart) -> None:
    # Lines.
    if chart.level is not None:
        axes.axhline(chart.level, color=MUTED, linestyle=DOTTED, clip_on=False, zorder=3, **LINE)
    for series in chart.series:
        color, marker = series.style
        axes.plot(
            [x for x, _ in series.points],
            [math.nan if y is None else y for _, y in series.points],
            linestyle=DASHED if series.negative else "-",
            marker=marker,
            markevery=_marked_points(series),
            color=color,
            clip_on=False,
            zorder=3,
            **LINE,
        )
    # Limits.
    values = [value for series in chart.series for value in series.values]
    levels = [] if chart.level is None else [chart.level]
    low, high, is_log = axis_limits([*values, *levels], from_zero=chart.from_zero)
    axes.set_yscale("log" if is_log else "linear")
    end = max(x for series in chart.series for x, _ in series.points)
    axes.set(xlim=(0, end if end > 0 else 1), ylim=(low, high))
    # Ticks and labels.
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
    subs = (1, 2, 5) if is_log and high / low < 1e3 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8) if is_log else MaxNLocator(5, steps=(1, 2, 5, 10)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(value)))
    style_axes(axes, across="", title=wrap_title(chart.title), size=8)
    axes.tick_params(left=False, bottom=False)  # the grid shows the places


def axis_limits(values: Sequence[float], *, from_zero: bool) -> tuple[float, float, bool]:
    """Return the limits of an axis that holds these values, and whether it is logarithmic."""
    low, high = min(values), max(values)
    if not from_zero and low > 0 and high / low > LOG_RATIO:
        return low / 1.2, high * 1.2, True
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    return (0.0 if from_zero and low == 0 else low - room), high + room, False


def _marked_points(series: Series) -> list[int]:
    """Return the positions of all points, or of the last and of those between two gaps."""
    known = [k for k, (_, value) in enumerate(series.points) if value is not None]
    present = set(known)
    return [k for k in known if series.mark_every_point or k == known[-1] or not {k - 1, k + 1} & present]


def format_tick(value: float) -> str:
    """Return the label of a tick: 0.25, 1,200, 24k, 6.2M, 1e−5."""
    size = abs(value)
    if size < SMALLEST:
        return "0"
    if size < 1e-3 or size >= 1e12:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+", "e").replace("-", "−")
    for unit, divisor, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= unit:
            return f"{value / divisor:.6g}{letter}".replace("-", "−")
    return f"{value:,.6g}".replace("-", "−")


@cache
def _known_letters() -> frozenset[int]:
    """Return the letters that both fonts have."""
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

_SUPERFLUOUS = re.compile(rb'(?<=\n) +| transform="rotate\(-0 [^"]*"| id="[a-z0-9.]+_[0-9]+"')
"""Indentation, rotations by 0 and names of groups: a fifth of the file."""
_TAG, _COLOR = re.compile(rb"<[^<>]*>"), re.compile(rb"#[0-9a-f]{6}")
_DARK = {light.lower().encode(): dark.encode() for light, dark in (DARK | {INK: DARK_INK, FRAME: DARK_FRAME}).items()}


def figure_svgs(figure: Figure) -> tuple[bytes, bytes]:
    """Return the figure as SVG for a white and for a black background.

    Args:
        figure: A figure of `plot_charts`. The colors of its texts are changed, so save it to other formats first.

    Returns:
        (light, dark): two files with the same layout and a transparent background.
    """
    fix_layout(figure)
    # Every text has a color, which black would not be: it is the default of SVG.
    for text in figure.findobj(Text):
        text.set_color(INK)
    for axes in figure.axes:
        axes.tick_params(labelcolor=INK)
    light = _save_svg(figure)
    return light, _use_dark_colors(light)


def _save_svg(figure: Figure) -> bytes:
    file = io.BytesIO()
    # Text stays text; the browser draws it in a sans-serif font.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "truedrift", "font.sans-serif": [FONTS[1]]}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _SUPERFLUOUS.sub(b"", file.getvalue())


def _use_dark_colors(svg: bytes) -> bytes:
    """Replace the colors in the tags of an SVG by those for a black background; texts stay as they are."""
    return _TAG.sub(lambda tag: _COLOR.sub(lambda color: _DARK.get(color[0], color[0]), tag[0]), svg)
