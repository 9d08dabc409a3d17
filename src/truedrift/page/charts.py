"""The style sheet: the palette's colors as custom properties, light and dark, and style.css after them.

Numbers of runs along their training: what becomes a line in a chart.

Progress is positives seen of each class, as in the paper. A number that is missing or not finite is a gap. Of long runs
every k-th logged step is taken, and the last.

An axis: where a value stands on it, and which ticks it has. Linear ticks are 1, 2 or 5 times a power of ten.

Lines over progress as inline SVG: it prints, scales, follows the colors of the page and says what it shows.

Gaps stay gaps; a point between two gaps is a dot. A mark tells its value to a pointer that rests on it.

Charts of the runs: distances to the data first, then what the training said of itself.

The bias gauge over training: how many references a centroid really has, and what its estimator moves.

Telemetry has the weights of one batch, not the population, so there is no measured bias here and none is claimed:

| light  | when                          | what it says                                                             |
|--------|-------------------------------|--------------------------------------------------------------------------|
| red    | dominated > ½                 | the centroid is mostly the nearest reference; no correction helps        |
| yellow | else, n_eff < FEW             | the bias is large, and its expansion in 1/n rough                        |
| green  | else                          | enough references for the leading bias to be most of it, which ABC takes |

The thresholds are those of docs/telemetry.md, rules of thumb; the calibrated light is that of `truedrift diagnose`.

All charts of some runs, made once: the page draws them, and so do the files beside it.

Names of runs and distances in a figure: any letters may come, and what the font lacks is a question mark.

Charts of the page as a figure for print: a small panel each, with the page's axes; one legend above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from statistics import fmean
from textwrap import wrap
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from truedrift.page.markup import COLORS, Content, Markup, element, table
from truedrift.page.run_data import Evaluation, Run, number, step_of
from truedrift.report.figure import MUTED, style_axes

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
class LineStyle:
    """How the line of a run looks, in every chart: a class of the style sheet and a mark at its end."""

    color: str
    shape: str


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line. `negative` ones are dashed."""

    name: str
    look: LineStyle
    points: Sequence[Point]
    negative: bool = False
    dotted: bool = False
    """Every point has a mark: evaluations are few."""


def line_styles(runs: Sequence[Run]) -> list[LineStyle]:
    """The estimator's color in the paper for the first run that has it, the next free one for the others."""
    free, taken = list(COLORS), []
    for position, run in enumerate(runs):
        wanted = run.config.objective.estimator_pos
        both = wanted == run.config.objective.estimator_neg
        color = wanted if both and wanted in free else _next(free, position)
        if color in free:
            free.remove(color)
        taken.append(LineStyle(color=color, shape=SHAPES[color]))
    return taken


def _next(free: Sequence[str], position: int) -> str:
    """Colors of estimators are given to others last."""
    others = [name for name in reversed(free) if name not in ("standard", "abc")]
    return (others or list(free) or list(COLORS))[0 if free else position % len(COLORS)]


def telemetry_series(run: Run, value: Callable[[Mapping[str, Any]], Any]) -> list[Point]:
    """What `value` finds in every logged step."""
    points = [(visible_steps(run, entry), number(value(entry))) for entry in run.telemetry]
    return thin(_forward(points))


def evaluation_series(run: Run, value: Callable[[Evaluation], Any], distance_name: str) -> list[Point]:
    """What `value` finds in every evaluation by that distance."""
    chosen = (each for each in run.evaluations if each.distance_name == distance_name)
    return thin(_forward([(float(run.config.positives_seen(each.step)), number(value(each))) for each in chosen]))


def visible_steps(run: Run, entry: Mapping[str, Any]) -> float:
    """Positives of a class until that line."""
    written = number(entry.get("positives_seen"))
    return float(run.config.positives_seen(step_of(entry) or 0)) if written is None else written


def thin(points: Sequence[Point]) -> list[Point]:
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


LOGARITHMIC_FROM = 20.0
"""Largest over smallest value."""
MOST_TICKS = 8
"""Of a logarithmic axis."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """From `low` at 0 to `high` at 1."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """The place of a value."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(values: Sequence[float], *, from_zero: bool = False, ticks: int = 5) -> Scale:
    """Around all values, to the next ticks beyond them."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    if low == high:  # one value, in the middle, or 0 at the bottom
        room = abs(low) or 1.0
        low, high = (0.0, 1.0) if from_zero else (low - room / 2, low + room / 2)
    step = _step((high - low) / ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = tuple(step * k for k in range(first, last + 1))
    return Scale(low=marks[0], high=marks[-1], logarithmic=False, ticks=marks)


def progress(values: Sequence[float]) -> Scale:
    """From 0 to the largest value, with no room beyond it."""
    whole = linear([*values, 0.0], ticks=4)
    high = max(values, default=0.0) or whole.high
    return Scale(low=0.0, high=high, logarithmic=False, ticks=tuple(tick for tick in whole.ticks if 0 <= tick <= high))


def fitting(values: Sequence[float], *, from_zero: bool = False) -> Scale:
    """Logarithmic where positive values reach over more than a factor of LOGARITHMIC_FROM, unless 0 is to be seen."""
    if not from_zero and values and min(values) > 0 and max(values) / min(values) > LOGARITHMIC_FROM:
        return logarithmic(values)
    return linear(values, from_zero=from_zero)


def logarithmic(values: Sequence[float]) -> Scale:
    """Around all values, which are positive; ticks at powers of ten, and 2 and 5 times them where they are few."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(decades) <= 3 else (1,)
    candidates = [factor * 10.0**decade for decade in decades for factor in factors]
    inside = tuple(tick for tick in candidates if low / 1.2 <= tick <= high * 1.2)
    inside = inside[:: -(-len(inside) // MOST_TICKS) or 1]
    return Scale(low=low / 1.2, high=high * 1.2, logarithmic=True, ticks=inside)


def _step(least: float) -> float:
    """The smallest of 1, 2 and 5 times powers of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def short(value: float) -> str:
    """A tick's label: 0.25, 1,200, 24k, 6.2M, 10⁻⁵."""
    size = abs(value)
    if size < 1e-12:
        return "0"
    if size < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-").replace("-", "−")
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            return f"{value / (1e3 if letter == 'k' else unit):.6g}{letter}".replace("-", "−")
    return f"{value:,.6g}".replace("-", "−")


WIDTH, HEIGHT = 360, 228
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 10, 40
ACROSS = "positives of a class seen"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn: series, and at most one dotted level, as the n that n_eff cannot exceed."""

    title: str
    about: str
    series: Sequence[Series]
    level: float | None = None
    from_zero: bool = False

    @property
    def shown(self) -> list[Series]:
        """Those with any value."""
        return [each for each in self.series if any(value is not None for _, value in each.points)]


@dataclass(frozen=True)
class Frame:
    """Values → places on the picture."""

    across: Scale
    up: Scale

    def place(self, x: float, y: float) -> tuple[float, float]:
        """In units of the picture, with one digit after the point."""
        return (
            round(LEFT + self.across.at(x) * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - self.up.at(y) * (HEIGHT - TOP - BOTTOM), 1),
        )


def figure(chart: Chart) -> Markup | None:
    """The chart under its title, or None where no run has a value for it."""
    if not chart.shown:
        return None
    return element("figure", element("h4", chart.title), svg(chart))


def svg(chart: Chart) -> Markup:
    """The picture."""
    frame = frame_of(chart)
    return element(
        "svg",
        element("title", chart.title),
        element("desc", _described(chart, frame)),
        _grid(frame),
        None if chart.level is None else _level(frame, chart.level),
        (_series(frame, series) for series in chart.shown),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )


def frame_of(chart: Chart) -> Frame:
    """Axes that hold all its values, and its level."""
    points = [(x, y) for series in chart.shown for x, y in series.points if y is not None]
    ys = [y for _, y in points] + ([] if chart.level is None else [chart.level])
    return Frame(progress([x for x, _ in points]), fitting(ys, from_zero=chart.from_zero))


def _described(chart: Chart, frame: Frame) -> str:
    ends = (f"{each.name}: {_last(each.points):.4g} at the end" for each in chart.shown)
    return ". ".join((chart.about, *ends)) + (". Logarithmic axis." if frame.up.logarithmic else ".")


def _last(points: Sequence[Point]) -> float:
    return next(value for _, value in reversed(points) if value is not None)


def _grid(frame: Frame) -> Iterator[Markup]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in frame.up.ticks:
        y = frame.place(frame.across.low, tick)[1]
        yield element("line", class_="grid", x1=LEFT, x2=right, y1=y, y2=y)
        yield element("text", short(tick), x=LEFT - 7, y=round(y + 4, 1), text_anchor="end")
    for tick in frame.across.ticks:
        x = frame.place(tick, frame.up.low)[0]
        yield element("line", class_="axis", x1=x, x2=x, y1=bottom, y2=bottom + 4)
        yield element("text", short(tick), x=x, y=bottom + 17, text_anchor="middle")
    yield element("line", class_="axis", x1=LEFT, x2=right, y1=bottom, y2=bottom)
    label = f"{ACROSS}{'  (vertical: logarithmic)' if frame.up.logarithmic else ''}"
    yield element("text", label, x=(LEFT + right) / 2, y=HEIGHT - 5, text_anchor="middle")


def _level(frame: Frame, level: float) -> Markup:
    y = frame.place(frame.across.low, level)[1]
    return element("line", class_="limit", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)


def _series(frame: Frame, series: Series) -> Iterator[Markup]:
    side = " negative" if series.negative else ""
    for stretch in stretches(series.points):
        places = [frame.place(*point) for point in stretch]
        if len(places) > 1:
            path = "M" + " L".join(f"{x:g} {y:g}" for x, y in places)
            yield element("path", class_=f"line {series.look.color}{side}", d=path)
        marked = range(len(places)) if series.dotted or len(places) == 1 else ()
        yield from (_mark(places[k], series, stretch[k]) for k in marked)
    if not series.dotted:
        last = [point for stretch in stretches(series.points) for point in stretch][-1]
        yield _mark(frame.place(*last), series, last)


def stretches(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """The points between gaps."""
    groups = groupby(points, key=lambda point: point[1] is None)
    return [[(x, y) for x, y in group if y is not None] for gap, group in groups if not gap]


def _mark(place: tuple[float, float], series: Series, point: tuple[float, float]) -> Markup:
    told = element("title", f"{series.name}: {point[1]:.4g} at {point[0]:,.0f}")
    return mark(place, series.look, told)


def mark(place: tuple[float, float], look: LineStyle, told: Markup | None = None) -> Markup:
    """The shape of a run, around that place."""
    (x, y), name = place, f"mark {look.color}"
    if look.shape == "circle":
        return element("circle", told, class_=name, cx=x, cy=y, r=3.6)
    corners = {
        "square": ((-3.3, -3.3), (3.3, -3.3), (3.3, 3.3), (-3.3, 3.3)),
        "triangle": ((0, -4.4), (4.2, 3.4), (-4.2, 3.4)),
        "diamond": ((0, -4.8), (4.8, 0), (0, 4.8), (-4.8, 0)),
    }[look.shape]
    return element("polygon", told, class_=name, points=" ".join(f"{x + dx:g},{y + dy:g}" for dx, dy in corners))


def legend(names: Sequence[str], looks: Sequence[LineStyle], *, sides: bool = False) -> Markup:
    """Which line is which run's, and what dashes mean."""
    runs = [_entry(name, f"line {look.color}", mark((17, 7), look)) for name, look in zip(names, looks, strict=True)]
    both = (("positive side", "line muted"), ("negative side", "line muted negative")) if sides else ()
    return element("ul", runs, (_entry(name, line, None) for name, line in both), class_="legend")


def _entry(name: str, line: str, shape: Markup | None) -> Markup:
    drawn = element("path", class_=line, d="M1 7 L33 7")
    sample = element("svg", drawn, shape, viewBox="0 0 34 14", aria_hidden="true")
    return element("li", sample, element("bdi", name))


Telemetry = Callable[[Mapping[str, Any]], Any]


def evaluation_charts(runs: Sequence[Run], looks: Sequence[LineStyle]) -> list[Chart]:
    """Of every distance by which a run was judged: itself, KID, precision, recall, and the Inception Score."""
    names = dict.fromkeys(each.distance_name for run in runs for each in run.evaluations)
    return [chart for name in names for chart in _of_distance(name, runs, looks)]


def _of_distance(name: str, runs: Sequence[Run], looks: Sequence[LineStyle]) -> list[Chart]:
    said = {"fid": f"{name}, smaller is better", "kid": "KID, smaller is better"}
    said |= {key: f"{key}, larger is better" for key in ("precision", "recall")}
    said |= {"inception_score": "Inception Score, larger is better"}
    return [_evaluated(key, title[:1].upper() + title[1:], name, runs, looks) for key, title in said.items()]


def _evaluated(key: str, title: str, distance: str, runs: Sequence[Run], looks: Sequence[LineStyle]) -> Chart:
    def value(each: Evaluation) -> Any:
        return each.metrics.get(key)

    series = [
        Series(name=run.name, look=look, points=evaluation_series(run, value, distance), dotted=True)
        for run, look in zip(runs, looks, strict=True)
    ]
    about = f"{title}, in features of {distance}" if key != "fid" else title
    return Chart(title=title, about=about, series=series, from_zero=key not in ("fid", "kid"))


def training_charts(runs: Sequence[Run], looks: Sequence[LineStyle]) -> list[Chart]:
    """Forces at every temperature, spread, gradient, speed."""
    plain = (
        Chart(title=title, about=about, series=_telemetry_series(runs, looks, _always(read)), from_zero=from_zero)
        for title, about, read, from_zero in _PLAIN
    )
    return [*(_force(tau, runs, looks) for tau in temperatures(runs)), *plain]


def _always(read: Telemetry) -> Callable[[Run], Telemetry]:
    """The same reader for every run."""
    return lambda run: read


def _force(tau: float, runs: Sequence[Run], looks: Sequence[LineStyle]) -> Chart:
    about = "RMS of the raw field before it is normalized, mean over scales; falls to the noise of a batch"
    series = _telemetry_series(runs, looks, lambda run: force(position(run, tau)))
    return Chart(title=f"Force at τ = {tau:g}", about=about, series=series)


def _telemetry_series(
    runs: Sequence[Run], looks: Sequence[LineStyle], reader: Callable[[Run], Telemetry]
) -> list[Series]:
    return [
        Series(name=run.name, look=look, points=telemetry_series(run, reader(run)))
        for run, look in zip(runs, looks, strict=True)
    ]


def sides(name: str, tau: float, runs: Sequence[Run], looks: Sequence[LineStyle]) -> list[Series]:
    """`name`_pos and `name`_neg at that temperature, of every run that has it."""
    return [
        Series(
            name=f"{run.name}, {'negative' if negative else 'positive'} side",
            look=look,
            points=telemetry_series(run, entry_at(f"{name}_{'neg' if negative else 'pos'}", position(run, tau))),
            negative=negative,
        )
        for run, look in zip(runs, looks, strict=True)
        for negative in (False, True)
    ]


def temperatures(runs: Sequence[Run]) -> list[float]:
    """Of all runs, from the coldest."""
    return sorted({tau for run in runs for tau in run.config.objective.temperatures})


def position(run: Run, tau: float) -> int:
    """Where the temperature stands in the run's lists; beyond their end if the run has no such one."""
    own = run.config.objective.temperatures
    return own.index(tau) if tau in own else len(own)


def force(at: int) -> Telemetry:
    """Mean over scales of that temperature's force."""

    def read(entry: Mapping[str, Any]) -> float | None:
        rows = entry.get("force")
        scales = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
        values = [number(row[at]) for row in scales if at < len(row)]
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None

    return read


def images_per_second(entry: Mapping[str, Any]) -> Any:
    """From the part of a line that depends on the machine."""
    timing = entry.get("timing")
    return timing.get("images_per_second") if isinstance(timing, dict) else None


_PLAIN: tuple[tuple[str, str, Telemetry, bool], ...] = (
    (
        "Spread",
        "Distance among generated features over that to data: near 1, near 0 on collapse",
        lambda entry: entry.get("spread"),
        True,
    ),
    ("Gradient norm", "Before clipping", lambda entry: entry.get("gradient_norm"), False),
    ("Generated images a second", "Depends on the machine", images_per_second, True),
)
"""Title, what it is, where it stands in a line of metrics, and whether its axis begins at 0."""

FEW = 3.0
CELLS = 48
STRIP = 240
"""Its width."""
Color = Literal["green", "yellow", "red", "none"]

ABOUT = (
    "A centroid of n references is the more biased the fewer of them hold its weight. n_eff = 1/\N{WORD JOINER}Σα² "
    "counts how many take part. The weight that an estimator moves, ½Σ|γ − α|, is its own estimate of the leading "
    "bias, in units of weight, and it takes that off. A standard run moves none: its bias stays in, and nothing here "
    "measures it."
)
HONEST = (
    "Lights are rules of thumb from the weights of one batch at a time: red where one reference holds more than half "
    f"of the weight for most queries, yellow where n_eff is below {FEW:g}, green elsewhere. They are not the "
    "calibrated light of truedrift diagnose, which needs the features themselves."
)


def gauge_charts(runs: Sequence[Run], looks: Sequence[LineStyle]) -> list[Chart]:
    """A row of charts a quantity, a column a temperature."""
    return [_chart(name, tau, runs, looks) for name in _SAID for tau in temperatures(runs)]


_SAID = {
    "n_eff": ("Effective references", "n_eff = 1/Σα², mean over queries; the dotted line is n"),
    "dominated": ("Dominated queries", "Share of queries for which one reference holds more than half of the weight"),
    "correction": ("Weight moved", "½Σ|γ − α|, the share of weight that the estimator moves; 0 for standard"),
}


def _chart(name: str, tau: float, runs: Sequence[Run], looks: Sequence[LineStyle]) -> Chart:
    title, about = _SAID[name]
    sizes = {run.config.batch.n for run in runs}
    level = float(sizes.pop()) if name == "n_eff" and len(sizes) == 1 else None
    drawn = sides(name, tau, runs, looks)
    return Chart(title=f"{title}, τ = {tau:g}", about=about, series=drawn, level=level, from_zero=True)


def dominance_level(n_eff: float | None, dominated: float | None) -> Color:
    """The rule; "none" where a number is missing."""
    if n_eff is None or dominated is None:
        return "none"
    if dominated > 0.5:
        return "red"
    return "yellow" if n_eff < FEW else "green"


def dominance_levels(run: Run, tau: float, side: str) -> list[Color]:
    """One a logged step."""
    at = position(run, tau)
    return [dominance_level(*_numbers(entry, at, side)) for entry in run.telemetry]


def _numbers(entry: Mapping[str, Any], at: int, side: str) -> tuple[float | None, float | None]:
    return number(entry_at(f"n_eff_{side}", at)(entry)), number(entry_at(f"dominated_{side}", at)(entry))


def gauge_table(run: Run) -> Markup | None:
    """A row a temperature and side: the lights along the training, and where it ended."""
    if not run.telemetry:
        return None
    rows = [_row(run, tau, side) for tau in run.config.objective.temperatures for side in ("pos", "neg")]
    header = ("τ", "side", "light at the end", "n_eff", "dominated", "moved", "lights from the first logged step on")
    return table(header, rows)


def _row(run: Run, tau: float, side: str) -> Sequence[Content]:
    at, last = position(run, tau), run.last
    n_eff, dominated = _numbers(last, at, side)
    moved = number(entry_at(f"correction_{side}", at)(last))
    of = run.config.batch.n if side == "pos" else run.config.generated - 1 + run.config.batch.unconditional
    shown = dominance_level(n_eff, dominated)
    return (
        f"{tau:g}",
        "positive" if side == "pos" else "negative",
        (element("span", class_=f"lamp {shown}"), shown if shown != "none" else "–"),
        "–" if n_eff is None else f"{n_eff:.2f} of {of}",
        "–" if dominated is None else f"{dominated:.0%}",
        "–" if moved is None else f"{moved:.1%}",
        strip(
            dominance_levels(run, tau, side),
            f"from {visible_steps(run, run.telemetry[0]):,.0f} to {visible_steps(run, last):,.0f}",
        ),
    )


def strip(lights: Sequence[Color], of: str) -> Markup:
    """The lights as a row of cells, at most CELLS; a cell shows the worst that it stands for."""
    counts = ", ".join(f"{lights.count(color)} {color}" for color in ("green", "yellow", "red") if color in lights)
    told = f"Of {len(lights)} logged steps, {of} positives seen: {counts or 'none known'}"
    drawn = _bars(list(_cells(lights)))
    return element("svg", element("title", told), drawn, viewBox=f"0 0 {STRIP} 16", role="img", class_="strip")


def _bars(cells: Sequence[Color]) -> Iterator[Markup]:
    """Neighbors of one color as one bar."""
    width, first = STRIP / len(cells), 0
    for color, group in groupby(cells):
        many = len(list(group))
        yield element("rect", class_=color, x=round(first * width, 2), y=2, width=round(many * width, 2), height=12)
        first += many


def _cells(lights: Sequence[Color]) -> Iterator[Color]:
    many = min(CELLS, len(lights))
    worst: tuple[Color, ...] = ("red", "yellow", "green", "none")
    for k in range(many):
        part = lights[k * len(lights) // many : (k + 1) * len(lights) // many]
        yield next(color for color in worst if color in part)


@dataclass(frozen=True, kw_only=True)
class Charts:
    """A look a run, and what evaluations, training and the gauge have to show."""

    runs: Sequence[Run]
    looks: Sequence[LineStyle]
    judged: Sequence[Chart]
    trained: Sequence[Chart]
    gauged: Sequence[Chart]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Charts:
        """Of these runs."""
        chosen = line_styles(runs)
        made = (evaluation_charts(runs, chosen), training_charts(runs, chosen), gauge_charts(runs, chosen))
        return cls(runs=runs, looks=chosen, judged=made[0], trained=made[1], gauged=made[2])


FONT = "STIXGeneral"
LONGEST = 48
"""Letters of a name that are shown."""
LINE = 34
"""Letters that fit above a panel."""


@cache
def _letters() -> frozenset[int]:
    """Of the font."""
    return frozenset(get_font(findfont(FONT)).get_charmap())


def remove_undrawable(text: str) -> str:
    """The text with letters of the font alone."""
    return "".join(letter if letter.isprintable() and ord(letter) in _letters() else "?" for letter in text)


def shorten(name: str) -> str:
    """Both ends of a long name."""
    shown, half = remove_undrawable(name), (LONGEST - 1) // 2
    return shown if len(shown) <= LONGEST else f"{shown[:half]}…{shown[-half:]}"


def lines(title: str) -> str:
    """A long title in several lines, at most three."""
    return "\n".join(wrap(remove_undrawable(title), LINE, max_lines=3, placeholder=" …"))


FIGURE_WIDTH, PANEL_HEIGHT, LINE_HEIGHT = 6.6, 1.6, 0.18  # inches; a text width
LETTER, SAMPLE = 0.062, 0.55
"""Widths in the legend, in inches: of a letter, and of a line with the room around it."""
MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}
LINE_WIDTH: dict[str, Any] = {"linewidth": 1.1, "markersize": 3.4}
ABOVE_THE_FRAME: dict[str, Any] = {"clip_on": False, "zorder": 3}
DASHED, DOTTED = (0, (3, 1.6)), ":"


def curves(charts: Charts) -> Figure | None:
    """Evaluations, then training; None where nothing was logged."""
    return plot_figure([*charts.judged, *charts.trained], _runs(charts), columns=3)


def gauge(charts: Charts) -> Figure | None:
    """The bias gauge, quantities of one kind below each other; None where nothing was logged."""
    sides = [_sample("positive side"), _sample("negative side", linestyle=DASHED)]
    level = [_sample("n", linestyle=DOTTED)] if any(chart.level is not None for chart in charts.gauged) else []
    columns = 2 if len(temperatures(charts.runs)) in (2, 4) else 3
    return plot_figure(charts.gauged, [*_runs(charts), *sides, *level], columns=columns)


def plot_figure(charts: Sequence[Chart], legend: Sequence[Line2D], *, columns: int) -> Figure | None:
    """A panel a chart that has a value; None where none has."""
    shown = [chart for chart in charts if chart.shown]
    if not shown:
        return None
    columns = min(columns, len(shown))
    rows = math.ceil(len(shown) / columns)
    beside = _legend_beside(legend)
    height = PANEL_HEIGHT * rows + LINE_HEIGHT * (1 + math.ceil(len(legend) / beside))
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    for k, chart in enumerate(shown):
        _panel(figure.add_subplot(rows, columns, k + 1), chart)
    figure.supxlabel(ACROSS, fontsize=8)
    told = figure.legend(handles=legend, loc="outside upper center", ncols=beside, frameon=False, fontsize=8)
    for text in told.get_texts():
        text.set_parse_math(False)
    return figure


def _legend_beside(legend: Sequence[Line2D]) -> int:
    """How many of these stand beside each other in the width of the figure."""
    longest = max(len(str(line.get_label())) for line in legend)
    return max(1, min(len(legend), int(FIGURE_WIDTH / (SAMPLE + LETTER * longest))))


def _runs(charts: Charts) -> list[Line2D]:
    """A sample of every run's line."""
    return [_sample(shorten(run.name), **_look(look)) for run, look in zip(charts.runs, charts.looks, strict=True)]


def _sample(name: str, **look: Any) -> Line2D:
    return Line2D([], [], label=name, **{"color": MUTED, **LINE_WIDTH, **look})


def _look(look: LineStyle) -> dict[str, Any]:
    return {"color": COLORS[look.color][0], "marker": MARKERS[look.shape]}


def _panel(axes: Axes, chart: Chart) -> None:
    frame = frame_of(chart)
    if chart.level is not None:
        axes.axhline(chart.level, color=MUTED, linestyle=DOTTED, **LINE_WIDTH, **ABOVE_THE_FRAME)
    for series in chart.shown:
        _line(axes, series)
    axes.set_yscale("log" if frame.up.logarithmic else "linear")
    axes.set(xlim=(frame.across.low, frame.across.high), ylim=(frame.up.low, frame.up.high))
    axes.set_xticks(frame.across.ticks, [short(tick) for tick in frame.across.ticks])
    axes.set_yticks(frame.up.ticks, [short(tick) for tick in frame.up.ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    style_axes(axes, across="", title=lines(chart.title), size=8)
    axes.title.set_parse_math(False)


def _line(axes: Axes, series: Series) -> None:
    """Gaps stay gaps; marks are where the page has them."""
    across = [x for x, _ in series.points]
    up = [math.nan if y is None else y for _, y in series.points]
    axes.plot(
        across,
        up,
        linestyle=DASHED if series.negative else "-",
        markevery=_marked_points(series.points, every=series.dotted),
        **LINE_WIDTH,
        **ABOVE_THE_FRAME,
        **_look(series.look),
    )


def _marked_points(points: Sequence[Point], *, every: bool) -> list[int]:
    """Positions of all points, or of the last and of those between two gaps, which have no line."""
    known = [k for k, (_, y) in enumerate(points) if y is not None]
    return [k for k in known if every or k == known[-1] or not {k - 1, k + 1} & set(known)]
