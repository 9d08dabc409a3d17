"""`fig:bias_loglog`: bias against n, exact (lines) and by Monte Carlo (points with two standard errors).

A point is b̂ of `app:toy`, which cannot fall far below the noise of its trials: where that exceeds the exact bias the
point is hollow and has no error bar.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from truedrift.records import BiasCurve, BiasCurves, SampledPoints
from truedrift.report.cell import Number, Scientific, shown
from truedrift.report.frame import framed, ticks_at
from truedrift.report.item import save_figure
from truedrift.report.palette import INK, LOOKS, MUTED
from truedrift.report.table import Table

NAME = "fig_bias_loglog"
FIGURE_INCHES = (6.6, 3.1)  # a text width


def save(record: BiasCurves, directory: Path) -> list[Path]:
    """The figure, and its exact values as a table."""
    return [*save_figure(draw(record), directory, NAME), *table(record).save(directory, NAME)]


def table(record: BiasCurves) -> Table:
    """Exact biases, and slopes between the last two n."""
    return Table(
        caption=(
            f"Exact bias of the centroid of n draws from {record.pool_points:,} points, mean over {record.queries} "
            "queries; slope between the last two n."
        ),
        label="tab:bias_loglog",
        header=("τ", "estimator", *(f"n = {n}" for n in record.n), "slope"),
        groups=[
            [
                (f"{tau:g}", LOOKS[c.estimator][0], *map(Scientific, c.exact), Number(record.slope(c)))
                for c in record.curves
                if c.tau == tau
            ]
            for tau in record.temperatures
        ],
    )


def draw(record: BiasCurves) -> Figure:
    """One panel for each temperature."""
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(1, len(record.temperatures), sharey=True, squeeze=False)[0]
    for axes, tau in zip(panels, record.temperatures, strict=True):
        _panel(axes, record, tau)
    panels[0].set_ylabel(r"$\|E[T_n] - T^*\|$, mean over queries", fontsize=9)
    _legend(figure, panels[0], record.trials)
    figure.subplots_adjust(left=0.095, right=0.985, bottom=0.155, top=0.83, wspace=0.07)
    return figure


def _panel(axes: Axes, record: BiasCurves, tau: float) -> None:
    for curve in record.curves:
        if curve.tau == tau:
            _curve(axes, record, curve)
    ticks_at(axes, record.n, [str(n) for n in record.n])
    framed(axes, across="references $n$", title=rf"$\tau = {tau:g}$", size=9)
    axes.set_yscale("log")
    axes.set_ylim(0.4 * min(c.exact[-1] for c in record.curves), 2.5 * max(c.exact[0] for c in record.curves))
    axes.set_xlim(0.75 * record.n[0], 2.4 * record.n[-1])
    place = (record.n[-1], axes.get_ylim()[1])
    axes.annotate("slope", place, (5, -10), textcoords="offset points", fontsize=8, color=INK)


def _curve(axes: Axes, record: BiasCurves, curve: BiasCurve) -> None:
    name, color, marker = LOOKS[curve.estimator]
    axes.plot(record.n, curve.exact, color=color, linewidth=1.3, label=f"{name}, exact", zorder=3)
    look: dict[str, Any] = {"fmt": marker, "markersize": 4, "color": color, "markeredgewidth": 0.8, "zorder": 4}
    if curve.points is not None:
        _points(axes, record.n, curve.exact, curve.points, look)
    slope = rf"$-{-record.slope(curve):.2f}$"
    axes.annotate(
        slope, (record.n[-1], curve.exact[-1]), (5, -2.5), textcoords="offset points", fontsize=8, color=color
    )


def _points(
    axes: Axes, sizes: tuple[int, ...], exact: tuple[float, ...], points: SampledPoints, look: dict[str, Any]
) -> None:
    for n, truth, bias, error, noise in zip(sizes, exact, points.bias, points.error, points.noise, strict=True):
        if noise <= truth:
            axes.errorbar(n, bias, 2 * error, elinewidth=0.9, capsize=1.5, **look)
        else:
            axes.errorbar(n, bias, markerfacecolor="white", **look)


def _legend(figure: Figure, panel: Axes, trials: int) -> None:
    handles, _ = panel.get_legend_handles_labels()
    mark: dict[str, Any] = {"marker": "o", "linestyle": "none", "color": MUTED, "markersize": 4}
    if trials:
        handles += [
            Line2D([], [], label=f"{trials:,} trials", **mark),
            Line2D([], [], markerfacecolor="white", label="… below their noise", **mark),
        ]
    figure.legend(handles=handles, loc="upper center", ncols=5, frameon=False, fontsize=8.5, columnspacing=1.3)


def verdicts(record: BiasCurves) -> list[str]:
    """One sentence for each temperature: the powers of n, and whether ABC ever has the larger mean bias."""
    return [_verdict(record, tau) for tau in record.temperatures]


def _verdict(record: BiasCurves, tau: float) -> str:
    curves = {curve.estimator: curve for curve in record.curves if curve.tau == tau}
    slopes = ", ".join(f"{shown(record.slope(curve), '.2f')} ({LOOKS[name][0]})" for name, curve in curves.items())
    larger = [
        str(n)
        for n, standard, abc in zip(record.n, curves["standard"].exact, curves["abc"].exact, strict=True)
        if abc > standard
    ]
    where = f"the larger one at n = {', '.join(larger)}" if larger else "the smaller one at every n"
    return f"τ = {tau:g}: slopes of the exact bias {slopes}; the bias of ABC is {where}"


def summary(record: BiasCurves) -> str:
    """Exact biases, slopes, and how Monte Carlo agrees."""
    head = (
        f"fig:bias_loglog: N = {record.pool_points:,}, {record.queries} queries, mean over queries of ‖E[T_n] − T*‖, "
        f"seed {record.provenance.seed}"
    )
    foot = [f"Exact curves in {record.exact_seconds:.1f} s."]
    if record.trials:
        within = record.within_two_errors
        foot += [
            f"{record.trials:,} trials for every n and query in {record.sampled_seconds:.0f} s.",
            f"{sum(within)} of {len(within)} mean squares are within two standard errors of the exact ones; "
            "95 % are expected.",
        ]
    return "\n".join((head, *(line for tau in record.temperatures for line in _section(record, tau)), "", *foot))


def _section(record: BiasCurves, tau: float) -> list[str]:
    lines = ["", _row(f"τ = {tau:g}", [f"n = {n}" for n in record.n], "slope")]
    for curve in record.curves:
        if curve.tau == tau:
            biases = [f"{b:.2e}" for b in curve.exact]
            lines.append(_row(LOOKS[curve.estimator][0], biases, f"{record.slope(curve):.3f}"))
    (shares,) = (each for each in record.contractions if each.tau == tau)
    return [
        *lines,
        "share of the queries at which",
        _row("  ABC is the more biased", _percent(shares.abc_exceeds)),
        _row("  bias leads away from x", _percent(shares.away_from_query)),
        _row("  … from the nearest mode", _percent(shares.away_from_mode)),
        _row("  … toward the global mean", _percent(shares.toward_mean)),
    ]


def _row(name: str, cells: list[str], last: str = "") -> str:
    return f"{name:26}" + "".join(f"{cell:>9}" for cell in cells) + f"{last:>8}".rstrip()


def _percent(shares: tuple[float, ...]) -> list[str]:
    return [f"{share:.0%}" for share in shares]
