"""`arithmetic`, our own study: does the gain of ABC depend on how the weights are normalized?

{abc-release, bidirectional, bidirectional-loo, row} × {standard, ABC, ABC-2} at n = 8. ABC and ABC-2 are compared with
standard in the same arithmetic, at the same seeds. The published arithmetic (abc-release) is defined only for features
of unit norm. Every cell therefore uses the feature_scale standardize-l2 instead of that of the recipe, and the cells
differ only in the arithmetic and the estimator.
"""

from truedrift.grids.benchmarks import BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.record import ImageGrid
from truedrift.paper.grid_tables import (
    VariantComparison,
    all_differences,
    difference_rows,
    measure_columns,
    protocol_line,
    short_runs_note,
    sizes,
)
from truedrift.report.figure import LOOKS
from truedrift.report.item import Item
from truedrift.report.statistics import comparisons_note
from truedrift.report.table import Row, Table

N = 8
ARITHMETICS = {
    "abc-release": {"arithmetic": "abc-release", "normalization": "bidirectional"},
    "bidirectional": {"arithmetic": "stable", "normalization": "bidirectional"},
    "bidirectional-loo": {"arithmetic": "stable", "normalization": "bidirectional-loo"},
    "row": {"arithmetic": "stable", "normalization": "row"},
}
ESTIMATORS = ("standard", "abc", "abc2")
COMPARISONS = {
    name: [VariantComparison(f"{name}/{each}", LOOKS[each][0], f"{name}/standard") for each in ("abc", "abc2")]
    for name in ARITHMETICS
}


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every cell with every seed."""
    return [
        Task(
            variant=f"{name}/{estimator}",
            config=benchmark.config(
                n=N,
                seed=seed,
                estimator_pos=estimator,
                estimator_neg=estimator,
                feature_scale="standardize-l2",
                **options,
            ),
        )
        for name, options in ARITHMETICS.items()
        for estimator in ESTIMATORS
        for seed in benchmark.seeds
    ]


def table(record: ImageGrid) -> Table:
    """Return three rows per arithmetic."""
    n, name = sizes(record)[0], record.protocol.distance_name
    compared = [each for comparisons in COMPARISONS.values() for each in comparisons]
    return Table(
        caption=(
            f"Arithmetic of the weights, n = {n}: {name} on {record.data}, mean ± largest deviation over seeds, the "
            "smallest of each arithmetic in bold, and paired differences to standard in the same arithmetic. "
            f"{protocol_line(record)} The paper has no such comparison."
        ),
        label="tab:arithmetic",
        header=("arithmetic", "estimator", "seeds", *measure_columns(record, " − standard")),
        groups=[_rows(record, n, arithmetic) for arithmetic in ARITHMETICS],
        notes=(*short_runs_note(record), comparisons_note(all_differences(record, n, compared))),
    )


def _rows(record: ImageGrid, n: int, arithmetic: str) -> list[Row]:
    starts = {f"{arithmetic}/{estimator}": (arithmetic, LOOKS[estimator][0]) for estimator in ESTIMATORS}
    return difference_rows(record, n, starts, COMPARISONS[arithmetic])


def findings(record: ImageGrid) -> list[str]:
    """Return one sentence per comparison, about the last-5 averages."""
    n = sizes(record)[0]
    return [
        f"{arithmetic}: {each.finding(record, n)}"
        for arithmetic, comparisons in COMPARISONS.items()
        for each in comparisons
    ]


ITEM = Item(
    "arithmetic",
    ImageGrid,
    "Does the gain of ABC depend on how the weights are normalized? Four arithmetics, three estimators.",
    table=table,
    findings=findings,
)
