"""The bias gauge over training: how many references a centroid really has, and what its estimator moves.

Telemetry has the weights of one batch, not the population, so there is no measured bias here and none is claimed:

| light  | when                          | what it says                                                             |
|--------|-------------------------------|--------------------------------------------------------------------------|
| red    | dominated > ½                 | the centroid is mostly the nearest reference; no correction helps        |
| yellow | else, n_eff < FEW             | the bias is large, and its expansion in 1/n rough                        |
| green  | else                          | enough references for the leading bias to be most of it, which ABC takes |

The thresholds are those of docs/telemetry.md, rules of thumb; the calibrated light is that of `truedrift diagnose`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from truedrift.report.page.chart import Chart
from truedrift.report.page.curves import position, sides, temperatures
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.run_files import Run, number
from truedrift.report.page.series import Look, entry_at, seen
from truedrift.report.page.tables import table

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


def gauge_charts(runs: Sequence[Run], looks: Sequence[Look]) -> list[Chart]:
    """A row of charts a quantity, a column a temperature."""
    return [_chart(name, tau, runs, looks) for name in _SAID for tau in temperatures(runs)]


_SAID = {
    "n_eff": ("Effective references", "n_eff = 1/Σα², mean over queries; the dotted line is n"),
    "dominated": ("Dominated queries", "Share of queries for which one reference holds more than half of the weight"),
    "correction": ("Weight moved", "½Σ|γ − α|, the share of weight that the estimator moves; 0 for standard"),
}


def _chart(name: str, tau: float, runs: Sequence[Run], looks: Sequence[Look]) -> Chart:
    title, about = _SAID[name]
    sizes = {run.config.batch.n for run in runs}
    level = float(sizes.pop()) if name == "n_eff" and len(sizes) == 1 else None
    drawn = sides(name, tau, runs, looks)
    return Chart(title=f"{title}, τ = {tau:g}", about=about, series=drawn, level=level, from_zero=True)


def light(n_eff: float | None, dominated: float | None) -> Color:
    """The rule; "none" where a number is missing."""
    if n_eff is None or dominated is None:
        return "none"
    if dominated > 0.5:
        return "red"
    return "yellow" if n_eff < FEW else "green"


def lights_of(run: Run, tau: float, side: str) -> list[Color]:
    """One a logged step."""
    at = position(run, tau)
    return [light(*_numbers(entry, at, side)) for entry in run.telemetry]


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
    shown = light(n_eff, dominated)
    return (
        f"{tau:g}",
        "positive" if side == "pos" else "negative",
        (element("span", class_=f"lamp {shown}"), shown if shown != "none" else "–"),
        "–" if n_eff is None else f"{n_eff:.2f} of {of}",
        "–" if dominated is None else f"{dominated:.0%}",
        "–" if moved is None else f"{moved:.1%}",
        strip(lights_of(run, tau, side), f"from {seen(run, run.telemetry[0]):,.0f} to {seen(run, last):,.0f}"),
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
