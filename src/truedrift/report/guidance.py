"""`guidance`: bias against the numbers of negatives, for standard, plain ABC and stratified ABC; a panel a strength."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truedrift.records import AtStrength, Guidance
from truedrift.report.cell import Number, Row, Scientific, shown
from truedrift.report.frame import framed, ticks_at
from truedrift.report.item import save_figure
from truedrift.report.palette import ABC, INK, STANDARD, STRATIFIED
from truedrift.report.table import Table

NAME = "guidance"
FIGURE_INCHES = (6.6, 3.2)  # a text width

LOOKS: dict[str, dict[str, Any]] = {
    "standard": {"color": STANDARD, "marker": "o"},
    "plain ABC": {"color": ABC, "marker": "s"},
    "stratified ABC": {"color": STRATIFIED, "marker": "^", "linestyle": (0, (4, 1.5))},
}


def save(record: Guidance, directory: Path) -> list[Path]:
    """Write the figure as PNG and PDF, and the table."""
    return [*save_figure(draw(record), directory, NAME), *table(record).save(directory, NAME)]


def summary(record: Guidance) -> str:
    """What the numbers are, and the table."""
    return "\n".join(
        (
            f"guidance: ‖E[T] − T*‖ with generated and unconditional negatives, mean over {record.queries} queries, "
            f"τ = {record.tau:g}, seed {record.provenance.seed}",
            "",
            table(record).aligned(),
            "",
            f"Exact to {_worst(record):.0e} of each bias, for draws from two pools of {record.pool_points:,} points.",
            "The last column is the share of queries at which stratified ABC has a smaller bias than plain ABC.",
        )
    )


def table(record: Guidance) -> Table:
    """Every strength and all sizes, and the exponents of n at the end."""
    return Table(
        caption=(
            f"Bias with generated and unconditional negatives, mean over {record.queries} queries, τ = {record.tau:g}; "
            f"exact to {_worst(record):.0e} of each bias for draws from two pools of {record.pool_points:,} points. "
            "The last column is the share of queries at which stratified ABC has a smaller bias than plain ABC."
        ),
        label="tab:guidance",
        header=("strength", "generated", "unconditional", *LOOKS, "nearer"),
        groups=[_rows(record, at) for at in record.at],
    )


def _worst(record: Guidance) -> float:
    return max(at.relative_error for at in record.at)


def _rows(record: Guidance, at: AtStrength) -> list[Row]:
    found = zip(record.sizes, at.standard, at.abc, at.stratified, at.share_nearer, strict=True)
    rows: list[Row] = [
        (f"{at.strength:g}", str(gen), str(unc), *map(Scientific, biases), Number(nearer, ".0%"))
        for (gen, unc), *biases, nearer in found
    ]
    return [*rows, (f"{at.strength:g}", "slope", "", *map(Number, at.slopes(record.sizes)), "")]


def verdicts(record: Guidance) -> list[str]:
    """One sentence for each strength: the powers of n."""
    return [
        f"strength {at.strength:g}: slopes of the bias "
        + ", ".join(f"{shown(s, '.2f')} ({name})" for name, s in zip(LOOKS, at.slopes(record.sizes), strict=True))
        for at in record.at
    ]


def draw(record: Guidance) -> Figure:
    """One panel for each strength."""
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(1, len(record.at), sharey=True, squeeze=False)[0]
    for axes, at in zip(panels, record.at, strict=True):
        _panel(axes, record, at)
    panels[0].set_ylabel(r"$\|E[T] - T^*\|$, mean over queries", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, frameon=False, fontsize=8.5, handlelength=2.6)
    figure.subplots_adjust(left=0.095, right=0.985, bottom=0.2, top=0.82, wspace=0.07)
    return figure


def _panel(axes: Axes, record: Guidance, at: AtStrength) -> None:
    total = [sum(sizes) for sizes in record.sizes]
    slopes = at.slopes(record.sizes)
    for (name, look), bias, slope in zip(LOOKS.items(), (at.standard, at.abc, at.stratified), slopes, strict=True):
        axes.plot(total, bias, linewidth=1.3, markersize=4, label=name, **look)
        place: dict[str, Any] = {"xytext": (7, -2.5), "textcoords": "offset points"}
        axes.annotate(rf"$-{-slope:.2f}$", (total[-1], bias[-1]), fontsize=8, color=look["color"], **place)
    axes.set_yscale("log")
    title = rf"strength $a = {at.strength:g}$, weight $w_u = {at.w_u:g}$"
    framed(axes, across=r"negatives: $n_{\mathrm{gen}}$ above, $n_{\mathrm{unc}}$ below", title=title, size=9)
    ticks_at(axes, total, [f"{gen}\n{unc}" for gen, unc in record.sizes])
    axes.set_xlim(0.7 * total[0], 2.5 * total[-1])
    told: dict[str, Any] = {"xytext": (9, 9), "textcoords": "offset points", "fontsize": 8, "color": INK}
    axes.annotate("slope", (total[-1], at.standard[-1]), **told)
