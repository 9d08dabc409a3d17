"""The study `normalization`: bias of both centroids against n under each normalization, and of the field as a table."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from truedrift.records import FieldBias, FieldBiases
from truedrift.report.cell import Row, Scientific, shown
from truedrift.report.frame import framed, ticks_at
from truedrift.report.item import save_figure
from truedrift.report.palette import LOOKS, MUTED
from truedrift.report.table import Table

NAME = "normalization"
NORMALIZATIONS = ("row", "bidirectional", "bidirectional-loo")
SIDES = {"T_pos": "$T^+$", "T_neg": "$T^-$"}
FIGURE_INCHES = (6.6, 4.6)


def save(record: FieldBiases, directory: Path) -> list[Path]:
    """The figure, and the table as Markdown, LaTeX and CSV."""
    return [*save_figure(draw(record), directory, NAME), *table(record).save(directory, NAME)]


def draw(record: FieldBiases) -> Figure:
    """Centroids from above, normalizations from the left."""
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(len(SIDES), len(NORMALIZATIONS), sharex=True, sharey=True)
    for i, side in enumerate(SIDES):
        for j, normalization in enumerate(NORMALIZATIONS):
            axes = panels[i, j]
            for estimator in LOOKS:
                _curve(axes, record, record.of(normalization, estimator, side))
            ticks_at(axes, record.n, [str(n) for n in record.n])
            axes.set_yscale("log")
            framed(
                axes,
                across="references $n$" if i == len(SIDES) - 1 else "",
                up=f"bias of {SIDES[side]}, RMS over queries" if j == 0 else "",
                title=normalization if i == 0 else "",
            )
    _legend(figure)
    figure.subplots_adjust(left=0.095, right=0.985, bottom=0.1, top=0.87, wspace=0.07, hspace=0.08)
    return figure


def _curve(axes: Axes, record: FieldBiases, bias: FieldBias) -> None:
    _, color, marker = LOOKS[bias.estimator]
    if bias.exact is not None:
        axes.plot(record.n, bias.exact, color=color, linewidth=1.2, zorder=2)
    points = list(zip(record.n, bias.root, bias.root_error, bias.resolved, strict=True))
    seen = [(n, root, 2 * error) for n, root, error, resolved in points if resolved]
    if seen:
        n, root, error = zip(*seen, strict=True)
        axes.errorbar(n, root, error, fmt=marker, color=color, markersize=4, elinewidth=0.9, capsize=1.5, zorder=4)
        if bias.exact is None:
            axes.plot(n, root, color=color, linewidth=0.9, linestyle="--", zorder=3)
    below = [(n, limit) for n, _, limit, resolved in points if not resolved]
    if below:
        n, limit = zip(*below, strict=True)
        axes.plot(n, limit, linestyle="none", marker="v", markersize=4, color=color, markerfacecolor="white", zorder=4)


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=color, marker=marker, markersize=4, linewidth=1.2, label=name)
        for name, color, marker in LOOKS.values()
    ]
    handles += [
        Line2D([], [], color=MUTED, linewidth=1.2, label="exact"),
        Line2D(
            [],
            [],
            color=MUTED,
            linestyle="none",
            marker="v",
            markersize=4,
            markerfacecolor="white",
            label="not resolved: at most",
        ),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=5, frameon=False, fontsize=8.5, columnspacing=1.3)


def table(record: FieldBiases) -> Table:
    """Root mean square bias of both centroids and of the field at every n."""
    return Table(
        caption=(
            f"Bias of the field as it is trained, root mean square over {record.queries} queries, τ = {record.tau:g}, "
            f"{record.trials:,} batches for every query and n; a dash is a bias that the noise hides."
        ),
        label="tab:normalization",
        header=("normalization", "estimator", "of", *(f"n = {n}" for n in record.n)),
        groups=[
            [_row(each) for each in record.biases if each.normalization == normalization]
            for normalization in NORMALIZATIONS
        ],
    )


def _row(bias: FieldBias) -> Row:
    side = {"T_pos": "T+", "T_neg": "T-", "V": "V"}[bias.side]
    cells = zip(bias.root, bias.resolved, strict=True)
    return (
        bias.normalization,
        LOOKS[bias.estimator][0],
        side,
        *(Scientific(root if resolved else None) for root, resolved in cells),
    )


def verdicts(record: FieldBiases) -> list[str]:
    """One sentence for each normalization: what ABC leaves of the bias of the field at the largest n."""
    return [f"{normalization}: {_verdict(record, normalization)}" for normalization in NORMALIZATIONS]


def _verdict(record: FieldBiases, normalization: str) -> str:
    standard, abc = (record.of(normalization, estimator, "V") for estimator in ("standard", "abc"))
    where = f"of V at n = {record.n[-1]}"
    if not (standard.resolved[-1] and abc.resolved[-1]):
        return f"the noise hides the bias {where}"
    return f"ABC leaves {shown(abc.root[-1] / standard.root[-1], '.1%')} of the standard bias {where}"


def summary(record: FieldBiases) -> str:
    """The table for the screen, with standard errors of the last n."""
    lines = [
        f"normalization: bias of the field as it is trained, RMS over {record.queries} queries, τ = {record.tau:g}, "
        f"{record.trials:,} batches, seed {record.provenance.seed}",
    ]
    for normalization in NORMALIZATIONS:
        lines += ["", f"{normalization:24}" + "".join(f"{f'n = {n}':>10}" for n in record.n) + f"{'± last':>10}"]
        for each in record.biases:
            if each.normalization == normalization:
                lines.append(_line(each))
    lines += ["", "<: not resolved, with its upper limit. The row normalization also has exact values:"]
    lines += [
        f"{LOOKS[each.estimator][0] + ', ' + each.side:24}" + "".join(f"{value:10.2e}" for value in each.exact)
        for each in record.biases
        if each.exact is not None
    ]
    return "\n".join(lines)


def _line(bias: FieldBias) -> str:
    columns = zip(bias.root, bias.root_error, bias.resolved, strict=True)
    cells = [f"{root:.2e}" if resolved else f"<{limit:.1e}" for root, limit, resolved in columns]
    last = f"{bias.root_error[-1]:.0e}" if bias.resolved[-1] else ""
    return (
        f"{'  ' + LOOKS[bias.estimator][0] + ', ' + bias.side:24}"
        + "".join(f"{cell:>10}" for cell in cells)
        + f"{last:>10}"
    )
