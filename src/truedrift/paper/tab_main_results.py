"""`tab:main_results`: distance of standard and ABC at every n, their paired difference, and the paper's values.

The grid n × {standard, ABC} × seeds also serves `fig:convergence` and `tab:samples_to_fid`, and `tab:cifar100` on its
own data set.
"""

from collections.abc import Callable, Mapping, Sequence

from truedrift.grids.benchmarks import BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.record import ImageGrid, ImageRun
from truedrift.paper.grid_tables import (
    MEASURES,
    VariantComparison,
    all_differences,
    by_seed,
    measure_cells,
    measure_columns,
    number_format,
    protocol_line,
    short_runs_note,
    sizes,
)
from truedrift.report.figure import LOOKS
from truedrift.report.item import Item
from truedrift.report.statistics import comparisons_note
from truedrift.report.table import Cell, MeanCell, Number, Row, Table

Printed = tuple[float, float | None]
"""Mean and deviation as the paper prints them; a single number has no deviation."""
Paper = Mapping[int, Mapping[str, Sequence[Printed]]]
"""n → variant, or "difference" → printed value of each measure."""
PAPER: Paper = {
    8: {
        "standard": ((7.31, 0.94), (6.83, 0.95)),
        "abc": ((6.40, 0.36), (5.81, 0.34)),
        "difference": ((-0.91, None), (-1.02, None)),
    },
    16: {
        "standard": ((4.79, 1.04), (4.46, 1.00)),
        "abc": ((4.66, 0.66), (4.30, 0.50)),
        "difference": ((-0.13, None), (-0.17, None)),
    },
    32: {
        "standard": ((4.34, 0.60), (4.02, 0.50)),
        "abc": ((3.89, 0.73), (3.71, 0.69)),
        "difference": ((-0.45, None), (-0.31, None)),
    },
    64: {
        "standard": ((3.77, 0.89), (3.24, 0.03)),
        "abc": ((3.52, 0.14), (3.40, 0.08)),
        "difference": ((-0.24, None), (0.16, None)),
    },
}
"""n → last-5 average and best FID on CIFAR-10, mean and largest deviation over three seeds, as the paper prints."""
VARIANTS = ("standard", "abc")
ABC_AGAINST_STANDARD = VariantComparison("abc", "ABC", "standard")


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every n, estimator and seed; the longest runs (small n) come first."""
    return [
        Task(variant=name, config=benchmark.config(n=n, seed=seed, estimator_pos=name, estimator_neg=name))
        for n in sorted(benchmark.sizes)
        for name in VARIANTS
        for seed in benchmark.seeds
    ]


def table(record: ImageGrid) -> Table:
    """Return three rows per n: standard, ABC, and their difference."""
    caption = (
        f"{record.protocol.distance_name} on {record.data} for standard and ABC with n references per class: last-5 "
        f"average and best, mean ± largest deviation over seeds, the smaller in bold. {protocol_line(record)} "
        "Paper: FID on CIFAR-10, three seeds."
    )
    columns = {"positives per class": lambda run: run.evaluations[-1].positives_seen, "epochs": lambda run: run.epochs}
    return comparison_table(record, "tab:main_results", caption, PAPER, columns)


def comparison_table(
    record: ImageGrid, label: str, caption: str, paper: Paper, columns: Mapping[str, Callable[[ImageRun], int]]
) -> Table:
    """Return the table of standard, ABC and their difference, with the paper's values.

    Args:
        record: The grid.
        label: The LaTeX label.
        caption: The caption.
        paper: The printed values.
        columns: Name → integer of a run, shown once if it is the same for all runs at an n.
    """
    every_n = sizes(record)
    return Table(
        caption=caption,
        label=label,
        header=("n", "estimator", "seeds", *columns, *measure_columns(record, ", paper")),
        groups=[_rows(record, n, paper.get(n, {}), columns) for n in every_n],
        notes=(
            *short_runs_note(record),
            comparisons_note([each for n in every_n for each in all_differences(record, n, [ABC_AGAINST_STANDARD])]),
        ),
    )


def _rows(
    record: ImageGrid,
    n: int,
    paper: Mapping[str, Sequence[Printed]],
    columns: Mapping[str, Callable[[ImageRun], int]],
) -> list[Row]:
    # Standard and ABC
    runs = [run for run in record.runs if run.n == n]
    extra = [_one_or_all(sorted({of(run) for run in runs})) for of in columns.values()]
    cells = {measure: measure_cells(record, VARIANTS, n, measure) for measure in MEASURES}
    rows: list[Row] = []
    for variant in VARIANTS:
        start = (str(n), LOOKS[variant][0], str(len(by_seed(record, variant, n))), *extra)
        own = [cells[measure][variant] for measure in MEASURES]
        rows.append((*start, *_with_paper_values(own, paper.get(variant))))
    # Their difference
    differences = {measure: ABC_AGAINST_STANDARD.difference(record, n, measure) for measure in MEASURES}
    intervals = [each.cell(number_format(record, measure)) for measure, each in differences.items()]
    pairs = next(iter(differences.values())).pairs
    start = (str(n), "ABC − standard", str(pairs), *("" for _ in extra))
    return [*rows, (*start, *_with_paper_values(intervals, paper.get("difference")))]


def _one_or_all(values: Sequence[int]) -> Cell:
    """Return the number that all runs share, or the different ones."""
    return ", ".join(f"{value:,}" for value in values) if len(values) > 1 else Number(values[0], ",d")


def _with_paper_values(cells: Sequence[Cell], paper: Sequence[Printed] | None) -> list[Cell]:
    """Return each cell followed by the paper's value, or by a dash."""
    printed: Sequence[tuple[float | None, float | None]] = paper or [(None, None)] * len(cells)
    return [each for cell, value in zip(cells, printed, strict=True) for each in (cell, MeanCell(*value, None))]


def findings(record: ImageGrid) -> list[str]:
    """Return one sentence per n, about the last-5 averages."""
    return [f"n = {n}: {ABC_AGAINST_STANDARD.finding(record, n)}" for n in sizes(record)]


ITEM = Item(
    "tab:main_results",
    ImageGrid,
    "Distance of standard and ABC at every n, their paired difference, and the paper's values.",
    table=table,
    findings=findings,
)
