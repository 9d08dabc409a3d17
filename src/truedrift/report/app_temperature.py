"""`app:temperature`: no τ′ stands for a correction.

| panel   | shows                                                                                            |
|---------|--------------------------------------------------------------------------------------------------|
| (a)     | n·Δ and the angle of ∂T*/∂τ with g_2, a dot a query; `eq:compensation` asks for one dot at 0°    |
| (b) (c) | the mean of ‖E[T_n(τ′)] − T*(τ)‖ against τ′/τ                                                    |
| (d)     | n_eff/n against τ: median, and 90 % of the queries                                               |
| (e) (f) | the same mean against n: standard, ABC, the best τ′ for all queries, the best τ′ of each         |
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from truedrift.records import AtTemperature, Compensated, Temperature
from truedrift.report.cell import Number, Row, Scientific, shown
from truedrift.report.frame import framed, ticks_at
from truedrift.report.item import save_figure
from truedrift.report.palette import ABC, CLOUD, INK, MUTED, STANDARD
from truedrift.report.table import Table

NAME = "app_temperature"
FIGURE_INCHES = (6.6, 4.3)  # a text width
SHOWN_N = 64
SHOWN_RATIOS = (0.8, 1.1)

LOOKS: dict[str, dict[str, Any]] = {
    "standard": {"color": STANDARD, "marker": "o"},
    "ABC": {"color": ABC, "marker": "s"},
    r"best $\tau'$ for all queries": {"color": INK, "marker": "D", "linestyle": (0, (4, 1.5))},
    r"best $\tau'$ of each query": {"color": MUTED, "marker": "v", "linestyle": (0, (1, 1.5))},
}


def save(record: Temperature, directory: Path) -> list[Path]:
    """Write the figure as PNG and PDF, and the table."""
    return [*save_figure(draw(record), directory, NAME), *table(record).save(directory, NAME)]


def summary(record: Temperature) -> str:
    """Both conditions of `eq:compensation`, the table, and n_eff."""
    pairs = (len(record.taus) - 1) * record.queries
    return "\n".join(
        (
            f"app:temperature: four modes, N = {record.pool_points:,}, {record.queries} queries, "
            f"seed {record.provenance.seed}",
            "",
            *(_conditions(at) for at in record.at),
            "",
            "‖E[T_n(τ′)] − T*(τ)‖, mean over queries, exact:",
            table(record).aligned(),
            f"τ′ from {record.ratios[0]:g} τ to {record.ratios[-1]:g} τ; E[T_n(τ′)] is interpolated in τ′, at τ′ = τ "
            f"to {max(at.interpolation_error for at in record.at):.0e} of the bias.",
            "",
            f"n_eff/n, median: {record.share_median[0]:.3f} at τ = {record.taus[0]:g}, "
            f"{record.share_median[-1]:.3f} at τ = {record.taus[-1]:g}; "
            f"it fails to grow with τ in {record.falls} of {pairs} cases.",
        )
    )


def _conditions(at: AtTemperature) -> str:
    return (
        f"τ = {at.tau:g}: n·Δ from {min(at.shifts):.3f} to {max(at.shifts):.3f}, median {median(at.shifts):.3f} "
        f"(one constant is needed); angle up to {max(at.angles_degrees):.1f}°, "
        f"median {median(at.angles_degrees):.1f}° (0° is needed)"
    )


def table(record: Temperature) -> Table:
    """Every τ and n, and the exponents of n at the end."""
    return Table(
        caption=(
            "Bias against the target of τ, exact, mean over queries: of standard and ABC at τ, of standard at the best "
            f"τ′ for all queries, and at the best τ′ of each; N = {record.pool_points:,}, {record.queries} queries."
        ),
        label="tab:temperature",
        header=("τ", "n", "standard", "best τ′", "best τ′/τ", "best τ′ of each", "ABC"),
        groups=[_rows(at) for at in record.at],
    )


def _rows(at: AtTemperature) -> list[Row]:
    rows: list[Row] = []
    for each in at.sizes:
        standard, best, own_best, abc = map(Scientific, (each.standard, each.best, each.own_best, each.abc))
        rows.append((f"{at.tau:g}", str(each.n), standard, best, Number(each.best_ratio, ".3f"), own_best, abc))
    of_standard, of_best, of_own_best, of_abc = map(Number, at.slopes)
    return [*rows, (f"{at.tau:g}", "slope", of_standard, of_best, "", of_own_best, of_abc)]


def verdicts(record: Temperature) -> list[str]:
    """One sentence for each τ: what the best τ′ leaves of the bias at the largest n, and what ABC leaves."""
    return [
        f"τ = {at.tau:g}, n = {last.n}: the best τ′ leaves {shown(last.best / last.standard, '.1%')} of the standard "
        f"bias, the best τ′ of each query {shown(last.own_best / last.standard, '.1%')}, "
        f"ABC {shown(last.abc / last.standard, '.1%')}"
        for at in record.at
        for last in at.sizes[-1:]
    ]


def draw(record: Temperature) -> Figure:
    """Two rows; beside the first column, a column for each temperature."""
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(2, 1 + len(record.at), squeeze=False)
    _conditions_panel(panels[0, 0], record)
    _effective_size_panel(panels[1, 0], record)
    for column, at in enumerate(record.at, start=1):
        _ratio_panel(panels[0, column], record, at)
        _size_panel(panels[1, column], at)
    _share_vertical(panels[0, 1:])
    _share_vertical(panels[1, 1:])
    for letter, axes in zip("abcdef", panels.flat, strict=False):
        axes.set_title(f"({letter})", fontsize=8.5, loc="left", pad=4)
    handles, labels = panels[1, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=4, frameon=False, fontsize=8.5, handlelength=2.6)
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.095, top=0.875, wspace=0.33, hspace=0.42)
    return figure


def _share_vertical(panels: Any) -> None:
    """The same limits, told at the first panel alone."""
    low, high = (f(axes.get_ylim()[k] for axes in panels) for k, f in ((0, min), (1, max)))
    for axes in panels:
        axes.set_ylim(low, high)


def _conditions_panel(axes: Axes, record: Temperature) -> None:
    looks: tuple[dict[str, Any], ...] = ({"color": INK}, {"facecolors": "none", "edgecolors": MUTED})
    for at, look in zip(record.at, looks, strict=False):
        axes.scatter(at.shifts, at.angles_degrees, s=7, linewidths=0.6, label=rf"$\tau = {at.tau:g}$", **look)
    shown = (-5, -2, -1, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5, 1, 2, 5)
    axes.set_xscale("symlog", linthresh=0.1)
    low, high = axes.get_xlim()
    axes.set_xticks(shown, [f"{tick:g}".replace("-", "−") for tick in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(low, high)
    framed(
        axes,
        across=r"$n \cdot \Delta$",
        up=r"angle of $\partial T^*/\partial\tau$ and $g_2$ (degrees)",
        title="one point at 0° is needed",
    )
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7.5, frameon=False, handletextpad=0.1, borderaxespad=0.2)


def _effective_size_panel(axes: Axes, record: Temperature) -> None:
    axes.fill_between(record.taus, record.share_low, record.share_high, color=CLOUD, alpha=0.6, linewidth=0)
    axes.plot(record.taus, record.share_median, color=INK, linewidth=1.3)
    axes.set_yscale("log")
    framed(axes, across=r"$\tau$", up=r"$n_{\mathrm{eff}}/n$")
    shown = (0.02, 0.05, 0.1, 0.2, 0.5, 1)
    ticks_at(axes, shown, [f"{tau:g}" for tau in shown])


def _ratio_panel(axes: Axes, record: Temperature, at: AtTemperature) -> None:
    (shown,) = (each for each in at.sizes if each.n == SHOWN_N)
    inside = [k for k, ratio in enumerate(record.ratios) if SHOWN_RATIOS[0] <= ratio <= SHOWN_RATIOS[1]]
    axes.plot([record.ratios[k] for k in inside], [shown.remaining[k] for k in inside], color=INK, linewidth=1.3)
    for value, look in zip(_biases(shown), LOOKS.values(), strict=True):
        if look["marker"] != "D":
            axes.axhline(value, color=look["color"], linewidth=1.1, linestyle=look.get("linestyle", "-"))
    axes.plot([shown.best_ratio], [shown.best], **LOOKS[r"best $\tau'$ for all queries"], markersize=4)
    axes.set_yscale("log")
    framed(axes, across=r"$\tau'/\tau$", up="remaining bias", title=rf"$\tau = {at.tau:g}$, $n = {shown.n}$")
    axes.set_xlim(SHOWN_RATIOS)


def _size_panel(axes: Axes, at: AtTemperature) -> None:
    n = [each.n for each in at.sizes]
    for values, (name, look) in zip(zip(*map(_biases, at.sizes), strict=True), LOOKS.items(), strict=True):
        axes.plot(n, values, linewidth=1.2, markersize=3.5, label=name, **look)
    axes.set_yscale("log")
    framed(axes, across="references $n$", up="remaining bias", title=rf"$\tau = {at.tau:g}$")
    ticks_at(axes, n, list(map(str, n)))


def _biases(each: Compensated) -> tuple[float, float, float, float]:
    """In the order of LOOKS."""
    return each.standard, each.abc, each.best, each.own_best
