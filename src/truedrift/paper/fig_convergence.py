"""`fig:convergence`: distance against positives seen over all classes, one panel per n; standard red, ABC blue.

`trajectory` describes the smoothing and the bands. The paper states that ABC is below standard during most of
training. The table shows the share of evaluations at which this is so here.
"""

from matplotlib.figure import Figure

from truedrift.grids.record import ImageGrid
from truedrift.paper.grid_tables import (
    Trajectory,
    axis_unit,
    draw_trajectory,
    plain_logarithmic,
    protocol_line,
    sizes,
    smoothing_window,
    trajectory,
)
from truedrift.report.figure import LOOKS, legend_above, style_axes
from truedrift.report.item import Item
from truedrift.report.statistics import decimals
from truedrift.report.table import Cell, MeanCell, Number, Row, Table

FIGURE_WIDTH, PANEL_HEIGHT = 6.6, 2.5  # inches; a text width
IN_A_ROW = 4
VARIANTS = ("standard", "abc")
SHARES = {"¼": 0.25, "½": 0.5, "¾": 0.75, "the end": 1.0}


def _curves(record: ImageGrid, n: int) -> dict[str, Trajectory]:
    return {variant: trajectory(record, variant, n) for variant in VARIANTS}


def _count_below(curves: dict[str, Trajectory]) -> tuple[int, int]:
    """Return at how many evaluations ABC is below standard, and how many both have."""
    standard, abc = (dict(zip(curves[v].positives, curves[v].mean, strict=True)) for v in VARIANTS)
    shared = [at for at in standard if at in abc]
    return sum(abc[at] < standard[at] for at in shared), len(shared)


def table(record: ImageGrid) -> Table:
    """Return the smoothed distance at quarters of the run, and how often ABC is below."""
    name = record.protocol.distance_name
    return Table(
        caption=(
            f"{name} on {record.data} during training, smoothed by a centered rolling mean over `window` evaluations "
            "(fewer at both ends of the run): mean ± largest deviation over seeds after ¼, ½ and ¾ of the positives "
            "and at the end. ABC below: share of the evaluations at which the curve of ABC is below that of standard. "
            f"{protocol_line(record)} Paper: ABC is below standard during most of training at every n (no numbers)."
        ),
        label="tab:convergence",
        header=("n", "estimator", "window", "evaluations", "seeds", *SHARES, "ABC below"),
        groups=[_rows(n, _curves(record, n)) for n in sizes(record)],
    )


def _rows(n: int, curves: dict[str, Trajectory]) -> list[Row]:
    spec = decimals(value for each in curves.values() for value in each.mean)
    below, shared = _count_below(curves)
    last: dict[str, Cell] = {"standard": "", "abc": Number(below / shared, ".0%")}
    return [
        (
            str(n),
            LOOKS[variant][0],
            str(smoothing_window(n)),
            str(len(curve.positives)),
            str(curve.seeds),
            *(_at(curve, share, spec) for share in SHARES.values()),
            last[variant],
        )
        for variant, curve in curves.items()
    ]


def _at(curve: Trajectory, share: float, spec: str) -> Cell:
    """Return the cell of the first evaluation after this share of the positives."""
    k = next(k for k, positives in enumerate(curve.positives) if positives >= share * curve.positives[-1])
    return MeanCell(curve.mean[k], curve.deviation[k] if curve.seeds > 1 else None, curve.seeds, spec)


def draw(record: ImageGrid) -> Figure:
    """Draw one panel per n, up to four per row."""
    # Make the panels.
    curves = {n: _curves(record, n) for n in sizes(record)}
    columns = min(IN_A_ROW, len(curves))
    rows = -(-len(curves) // columns)
    height = PANEL_HEIGHT * rows
    figure = Figure(figsize=(FIGURE_WIDTH, height))
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in panels.flat[len(curves) :]:
        axes.set_visible(False)
    # Draw both estimators in each.
    unit, unit_name = axis_unit(max(curve.positives[-1] for pair in curves.values() for curve in pair.values()))
    for k, (n, pair) in enumerate(curves.items()):
        axes = panels.flat[k]
        for variant, curve in pair.items():
            name, color, marker = LOOKS[variant]
            draw_trajectory(axes, curve, unit, color=color, marker=marker, label=name)
        plain_logarithmic(axes)
        up = record.protocol.distance_name if k % columns == 0 else ""
        style_axes(axes, across=f"positives seen, {unit_name}", up=up, title=f"$n = {n}$", size=8)
    # Add the legend.
    legend_above(figure, panels.flat[0].get_legend_handles_labels()[0], columns=2, handlelength=2.6)
    margin = {"left": 0.085, "right": 0.985, "bottom": 0.42 / height, "top": 1 - 0.48 / height}
    figure.subplots_adjust(**margin, wspace=0.08, hspace=0.45)
    return figure


def findings(record: ImageGrid) -> list[str]:
    """Return one sentence per n."""
    sentences = []
    for n in sizes(record):
        below, shared = _count_below(_curves(record, n))
        count = f"{below} of {shared} evaluations"
        sentences.append(f"n = {n}: the smoothed curve of ABC is below that of standard at {count}")
    return sentences


ITEM = Item(
    "fig:convergence",
    ImageGrid,
    "Distance against positives seen over all classes, one panel per n; standard red, ABC blue.",
    table=table,
    figure=draw,
    findings=findings,
)
