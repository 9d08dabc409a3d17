"""`tab:main_results`: distance of standard and ABC at every n, their paired difference, and the paper's values.

The grid n × {standard, ABC} × seeds also serves `fig:convergence` and `tab:samples_to_fid`, and `tab:cifar100` on its
own data set.
"""

from truedrift.grids.benchmarks import BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.results import ImageGrid
from truedrift.paper.grid_tables import (
    ABC_AGAINST_STANDARD,
    MEASURES,
    Paired,
    Paper,
    comparison_rows,
    comparisons_note,
    coverage_notes,
    one_or_all,
    protocol_line,
    runs_with_evaluations,
    sizes,
)
from truedrift.report.item import Item
from truedrift.report.table import Row, Table

PAPER: dict[int, Paper] = {
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
ESTIMATORS = ("standard", "abc")


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every n, estimator and seed; the longest runs (small n) come first."""
    return [
        Task(variant=name, config=benchmark.config(n=n, seed=seed, estimator_pos=name, estimator_neg=name))
        for n in sorted(benchmark.sizes)
        for name in ESTIMATORS
        for seed in benchmark.seeds
    ]


def table(record: ImageGrid) -> Table:
    """Return three rows per n: standard, ABC, and their difference."""
    name = record.protocol.distance_name
    return Table(
        caption=(
            f"{name} on {record.data} for standard and ABC by references n of a class: last-5 average and best, "
            f"mean ± largest deviation over seeds, the smaller in bold. {protocol_line(record)} "
            "Paper: FID on CIFAR-10, three seeds."
        ),
        label="tab:main_results",
        header=("n", "estimator", "seeds", "positives per class", "epochs", *_columns(name)),
        groups=[_rows(record, n) for n in sizes(record)],
        notes=(*coverage_notes(record), comparisons_note(_intervals(record))),
    )


def _columns(name: str) -> list[str]:
    return [column for measure in MEASURES for column in (f"{measure} {name}", f"{measure}, paper")]


def _rows(record: ImageGrid, n: int) -> list[Row]:
    runs = [run for run in runs_with_evaluations(record) if run.n == n]
    positives = one_or_all(run.evaluations[-1].positives_seen for run in runs)
    extra = (positives, one_or_all(run.epochs for run in runs))
    return comparison_rows(record, ABC_AGAINST_STANDARD, n, PAPER.get(n, {}), extra)


def _intervals(record: ImageGrid) -> list[Paired]:
    return [each for n in sizes(record) for each in ABC_AGAINST_STANDARD.differences(record, n)]


def verdicts(record: ImageGrid) -> list[str]:
    """Return one sentence per n, about the last-5 averages."""
    return [f"n = {n}: {ABC_AGAINST_STANDARD.verdict(record, n)}" for n in sizes(record)]


ITEM = Item(
    label="tab:main_results",
    record=ImageGrid,
    description="Distance of standard and ABC at every n, their paired difference, and the paper's values.",
    table=table,
    findings=verdicts,
)
