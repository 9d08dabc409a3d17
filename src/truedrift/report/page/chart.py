"""Lines over progress as inline SVG: it prints, scales, follows the colors of the page and says what it shows.

Gaps stay gaps; a point between two gaps is a dot. A mark tells its value to a pointer that rests on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from truedrift.report.page.markup import Markup, element
from truedrift.report.page.scale import Scale, fitting, progress, short
from truedrift.report.page.series import Look, Point, Series

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


def mark(place: tuple[float, float], look: Look, told: Markup | None = None) -> Markup:
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


def legend(names: Sequence[str], looks: Sequence[Look], *, sides: bool = False) -> Markup:
    """Which line is which run's, and what dashes mean."""
    runs = [_entry(name, f"line {look.color}", mark((17, 7), look)) for name, look in zip(names, looks, strict=True)]
    both = (("positive side", "line muted"), ("negative side", "line muted negative")) if sides else ()
    return element("ul", runs, (_entry(name, line, None) for name, line in both), class_="legend")


def _entry(name: str, line: str, shape: Markup | None) -> Markup:
    drawn = element("path", class_=line, d="M1 7 L33 7")
    sample = element("svg", drawn, shape, viewBox="0 0 34 14", aria_hidden="true")
    return element("li", sample, element("bdi", name))
