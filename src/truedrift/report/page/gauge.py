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
from typing import Any, Literal

from truedrift.report.page.chart import Chart
from truedrift.report.page.curves import position, sides, temperatures
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.run_files import Run, number
from truedrift.report.page.series import Look, entry_at, seen
from truedrift.report.page.tables import table

FEW = 3.0
CELLS = 48
Color = Literal["green", "yellow", "red", "none"]

ABOUT = (
    "A centroid of n references has a bias that grows as its weights gather on few of them. n_eff = 1/Σα² counts how "
    "many really take part. The weight that an estimator moves, ½Σ|γ − α|, is what it takes the leading bias to be, "
    "measured in weight: ABC moves it to where the bias was. A standard run moves none; its bias stays in, and nothing "
    "here measures it."
)
HONEST = (
    "Lights are rules of thumb from the weights of one batch at a time: red where one reference holds more than half "
    f"of the weight for most queries, yellow where n_eff is below {FEW:g}, green elsewhere. They are not the calibrated "
    "light of truedrift diagnose, which needs the features themselves."
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
    header = ("τ", "side", "lights, from the first logged step to the last", "n_eff at the end", "dominated", "moved")
    return table([*header, "light"], rows)


def _row(run: Run, tau: float, side: str) -> Sequence[Content]:
    at, last = position(run, tau), run.last
    n_eff, dominated = _numbers(last, at, side)
    moved = number(entry_at(f"correction_{side}", at)(last))
    of = run.config.batch.n if side == "pos" else run.config.generated - 1 + run.config.batch.unconditional
    shown = light(n_eff, dominated)
    return (
        f"{tau:g}",
        "positive" if side == "pos" else "negative",
        strip(lights_of(run, tau, side), f"from {seen(run, run.telemetry[0]):,.0f} to {seen(run, last):,.0f}"),
        "–" if n_eff is None else f"{n_eff:.2f} of {of}",
        "–" if dominated is None else f"{dominated:.0%}",
        "–" if moved is None else f"{moved:.1%}",
        (element("span", class_=f"lamp {shown}"), shown if shown != "none" else "–"),
    )


def strip(lights: Sequence[Color], of: str) -> Markup:
    """The lights as a row of cells, at most CELLS; a cell shows the worst that it stands for."""
    cells = list(_cells(lights))
    width = round(240 / len(cells), 2)
    drawn = (
        element("rect", class_=color, x=round(k * width, 2), y=2, width=width, height=12)
        for k, color in enumerate(cells)
    )
    counts = ", ".join(f"{lights.count(color)} {color}" for color in ("green", "yellow", "red") if color in lights)
    told = f"Of {len(lights)} logged steps, {of} positives seen: {counts or 'none known'}"
    return element("svg", element("title", told), drawn, viewBox="0 0 240 16", role="img", class_="strip")


def _cells(lights: Sequence[Color]) -> Iterator[Color]:
    many = min(CELLS, len(lights))
    worst: tuple[Color, ...] = ("red", "yellow", "green", "none")
    for k in range(many):
        part = lights[k * len(lights) // many : (k + 1) * len(lights) // many]
        yield next(color for color in worst if color in part)
