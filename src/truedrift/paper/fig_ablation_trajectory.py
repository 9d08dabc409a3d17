"""`fig:ablation_trajectory`: which side needs the correction? None, positive, negative or both at n = 8.

`none` is the standard estimator on both sides, `both` is ABC; these runs belong to `tab:main_results` too. The figure
shows the distance during training, the table the last-5 averages. `trajectory` describes the smoothing and the bands.
"""

from matplotlib.figure import Figure

from truedrift.grids.benchmarks import BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.record import ImageGrid
from truedrift.paper.grid_tables import (
    VariantComparison,
    all_differences,
    axis_unit,
    difference_rows,
    draw_trajectory,
    measure_columns,
    plain_logarithmic,
    protocol_line,
    short_runs_note,
    sizes,
    smoothing_window,
    trajectory,
)
from truedrift.report.figure import ABC, NEGATIVE, POSITIVE, STANDARD, style_axes
from truedrift.report.item import Item
from truedrift.report.statistics import comparisons_note
from truedrift.report.table import Table

N = 8
SIDES = {
    "none": ("standard", "standard"),
    "positive": ("abc", "standard"),
    "negative": ("standard", "abc"),
    "both": ("abc", "abc"),
}
"""Variant → estimators of the positive and the negative side."""
FIGURE_INCHES = (4.4, 3.1)
LOOKS = {
    "none": ("none (standard)", STANDARD, "o"),
    "positive": ("positive only", POSITIVE, "v"),
    "negative": ("negative only", NEGATIVE, "D"),
    "both": ("both (ABC)", ABC, "s"),
}
"""Variant → display name, color and marker."""
AGAINST_NONE = [VariantComparison(variant, LOOKS[variant][0], "none", "none") for variant in LOOKS if variant != "none"]


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every variant with every seed."""
    return [
        Task(variant=variant, config=benchmark.config(n=N, seed=seed, estimator_pos=pos, estimator_neg=neg))
        for variant, (pos, neg) in SIDES.items()
        for seed in benchmark.seeds
    ]


def table(record: ImageGrid) -> Table:
    """Return one row per variant: both measures, and their paired differences to none."""
    n, name = sizes(record)[0], record.protocol.distance_name
    starts = {variant: (name,) for variant, (name, _, _) in LOOKS.items()}
    return Table(
        caption=(
            f"Which side is corrected, n = {n}: {name} on {record.data}, mean ± largest deviation over seeds, the "
            "smallest in bold, and paired differences to none. The figure shows a centered rolling mean over "
            f"{smoothing_window(n)} evaluations (fewer at both ends of the run). {protocol_line(record)} "
            "Paper (no numbers): every correction is below none, negative only is below positive only, and both is the "
            "lowest during most of training."
        ),
        label="tab:ablation_trajectory",
        header=("corrected side", "seeds", *measure_columns(record, " − none")),
        groups=[difference_rows(record, n, starts, AGAINST_NONE)],
        notes=(*short_runs_note(record), comparisons_note(all_differences(record, n, AGAINST_NONE))),
    )


def draw(record: ImageGrid) -> Figure:
    """Draw one panel, at the smallest n."""
    n = sizes(record)[0]
    curves = {variant: trajectory(record, variant, n) for variant in LOOKS}
    unit, unit_name = axis_unit(max(curve.positives[-1] for curve in curves.values()))
    figure = Figure(figsize=FIGURE_INCHES)
    axes = figure.subplots()
    for variant, (name, color, marker) in LOOKS.items():
        draw_trajectory(axes, curves[variant], unit, color=color, marker=marker, label=name)
    plain_logarithmic(axes)
    style_axes(axes, across=f"positives seen, {unit_name}", up=record.protocol.distance_name, title=f"$n = {n}$")
    axes.legend(title="corrected side", title_fontsize=8, fontsize=8, frameon=False, handlelength=2.6)
    figure.subplots_adjust(left=0.125, right=0.98, bottom=0.135, top=0.925)
    return figure


def findings(record: ImageGrid) -> list[str]:
    """Return one sentence per corrected side, about the last-5 averages."""
    n = sizes(record)[0]
    return [f"n = {n}, {each.name} against none: {each.finding(record, n)}" for each in AGAINST_NONE]


ITEM = Item(
    "fig:ablation_trajectory",
    ImageGrid,
    "Which side needs the correction: distance during training, and last-5 averages.",
    table=table,
    figure=draw,
    findings=findings,
)
