"""`fig:convergence`: distance against positives seen over all classes, one panel per n; standard red, ABC blue.

`trajectory` describes the smoothing and the bands. The paper states that ABC lies below standard through most of
training; the table counts the evaluations at which it does here.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truedrift.grids.results import ImageGrid
from truedrift.paper.grid_tables import (
    Trajectory,
    axis_unit,
    decimals,
    draw_trajectory,
    plain_logarithmic,
    protocol_line,
    sizes,
    smoothing_window,
    trajectory,
    unevaluated_note,
)
from truedrift.report.figure import LOOKS, style_axes
from truedrift.report.item import Item
from truedrift.report.table import Cell, MeanCell, Number, Row, Table

FIGURE_WIDTH, PANEL_HEIGHT = 6.6, 2.5  # inches; a text width
IN_A_ROW = 4
VARIANTS = ("standard", "abc")
SHARES = {"¼": 0.25, "½": 0.5, "¾": 0.75, "the end": 1.0}


def table(record: ImageGrid) -> Table:
    """Return the smoothed distance at quarters of the run, and how often ABC is below."""
    name = record.protocol.distance_name
    return Table(
        caption=(
            f"{name} on {record.data} on the way, smoothed: centered rolling mean over `window` evaluations, cut at "
            "the ends to those that exist; mean ± largest deviation over seeds after ¼, ½, ¾ of the positives and at "
            "the end. ABC below: share of the evaluations at which its curve is the lower one. "
            f"{protocol_line(record)} Paper: ABC lies below through most of training at every n (no numbers)."
        ),
        label="tab:convergence",
        header=("n", "estimator", "window", "evaluations", "seeds", *SHARES, "ABC below"),
        groups=[_rows(record, n) for n in sizes(record)],
        notes=unevaluated_note(record),
    )


def _rows(record: ImageGrid, n: int) -> list[Row]:
    curves = {variant: trajectory(record, variant, n) for variant in VARIANTS}
    below = {"abc": Number(_share_below(curves), ".0%")}
    return [
        (
            str(n),
            LOOKS[variant][0],
            str(smoothing_window(n)),
            str(len(curve.positives)),
            str(curve.seeds),
            *(_at(curve, share, curves) for share in SHARES.values()),
            below.get(variant, ""),
        )
        for variant, curve in curves.items()
    ]


def _at(curve: Trajectory, share: float, curves: dict[str, Trajectory]) -> Cell:
    """Return the cell of the first evaluation after this share of the positives."""
    if not curve.positives:
        return MeanCell(None, None, 0)
    k = next(k for k, positives in enumerate(curve.positives) if positives >= share * curve.positives[-1])
    spec = decimals(value for each in curves.values() for value in each.mean)
    return MeanCell(curve.mean[k], curve.deviation[k] if curve.seeds > 1 else None, curve.seeds, spec)


def _both(curves: dict[str, Trajectory]) -> list[tuple[float, float]]:
    """Return the distances of standard and ABC at the evaluations that both have."""
    standard, abc = (dict(zip(curves[v].positives, curves[v].mean, strict=True)) for v in VARIANTS)
    return [(standard[at], abc[at]) for at in standard if at in abc]


def _share_below(curves: dict[str, Trajectory]) -> float | None:
    both = _both(curves)
    return sum(abc < standard for standard, abc in both) / len(both) if both else None


def draw(record: ImageGrid) -> Figure:
    """Draw one panel per n, up to four per row."""
    every_n = sizes(record)
    columns = min(IN_A_ROW, len(every_n))
    rows = -(-len(every_n) // columns)
    height = PANEL_HEIGHT * rows
    figure = Figure(figsize=(FIGURE_WIDTH, height))
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in panels.flat[len(every_n) :]:
        axes.set_visible(False)
    curves = {n: {variant: trajectory(record, variant, n) for variant in VARIANTS} for n in every_n}
    unit = axis_unit(max(p for pair in curves.values() for curve in pair.values() for p in (0, *curve.positives)))
    for k, n in enumerate(every_n):
        _panel(panels.flat[k], n, curves[n], unit, up=record.protocol.distance_name if k % columns == 0 else "")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=2, frameon=False, fontsize=8.5, handlelength=2.6)
    margin = {"left": 0.085, "right": 0.985, "bottom": 0.42 / height, "top": 1 - 0.48 / height}
    figure.subplots_adjust(**margin, wspace=0.08, hspace=0.45)
    return figure


def _panel(axes: Axes, n: int, curves: dict[str, Trajectory], unit: tuple[float, str], *, up: str) -> None:
    for variant, curve in curves.items():
        name, color, marker = LOOKS[variant]
        draw_trajectory(axes, curve, unit[0], color=color, marker=marker, label=name)
    plain_logarithmic(axes)
    style_axes(axes, across=f"positives seen, {unit[1]}", up=up, title=f"$n = {n}$", size=8)


def verdicts(record: ImageGrid) -> list[str]:
    """Return one sentence per n."""
    return [_verdict(record, n) for n in sizes(record)]


def _verdict(record: ImageGrid, n: int) -> str:
    both = _both({variant: trajectory(record, variant, n) for variant in VARIANTS})
    if not both:
        return f"n = {n}: standard and ABC share no evaluation"
    below = sum(abc < standard for standard, abc in both)
    return f"n = {n}: the smoothed curve of ABC is below that of standard at {below} of {len(both)} evaluations"


ITEM = Item(
    label="fig:convergence",
    record=ImageGrid,
    description="Distance against positives seen over all classes, one panel per n; standard red, ABC blue.",
    table=table,
    figure=draw,
    findings=verdicts,
)
