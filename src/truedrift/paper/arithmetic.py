"""`arithmetic`, our own study: does the gain of ABC depend on how the weights are normalized?

{abc-release, bidirectional, bidirectional-loo, row} × {standard, ABC, ABC-2} at n = 8. ABC and ABC-2 are compared with
standard in the same arithmetic, at the same seeds. The published arithmetic (abc-release) is defined on unit features
only, so every cell uses feature_scale standardize-l2, whatever the recipe says: the cells differ only in the arithmetic
and the estimator.
"""

from truedrift.grids.benchmarks import BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.results import ImageGrid
from truedrift.paper.grid_tables import (
    MEASURES,
    VariantComparison,
    by_seed,
    comparisons_note,
    coverage_notes,
    interval_cell,
    measure_cells,
    number_format,
    protocol_line,
    sizes,
)
from truedrift.report.figure import LOOKS
from truedrift.report.item import Item
from truedrift.report.table import Cell, Row, Table

N = 8
ARITHMETICS = {
    "abc-release": {"arithmetic": "abc-release", "normalization": "bidirectional"},
    "bidirectional": {"arithmetic": "stable", "normalization": "bidirectional"},
    "bidirectional-loo": {"arithmetic": "stable", "normalization": "bidirectional-loo"},
    "row": {"arithmetic": "stable", "normalization": "row"},
}
ESTIMATORS = ("standard", "abc", "abc2")


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


def against(arithmetic: str, estimator: str) -> VariantComparison:
    """Return the comparison of an estimator with standard in one arithmetic."""
    base = f"{arithmetic}/standard"
    return VariantComparison(
        variant=f"{arithmetic}/{estimator}", name=LOOKS[estimator][0], base=base, base_name=LOOKS["standard"][0]
    )


def _comparisons() -> list[tuple[str, VariantComparison]]:
    return [(each, against(each, estimator)) for each in ARITHMETICS for estimator in ("abc", "abc2")]


def table(record: ImageGrid) -> Table:
    """Return three rows per arithmetic; a missing run is a dash."""
    n, name = sizes(record)[0], record.protocol.distance_name
    columns = [column for measure in MEASURES for column in (f"{measure} {name}", f"{measure} − standard")]
    found = [each for _, pair in _comparisons() for each in pair.differences(record, n)]
    return Table(
        caption=(
            f"Arithmetic of the weights, n = {n}: {name} on {record.data}, mean ± largest deviation over seeds, the "
            "smallest of each arithmetic in bold, and paired differences to standard in the same arithmetic. "
            f"{protocol_line(record)} The paper has no such comparison."
        ),
        label="tab:arithmetic",
        header=("arithmetic", "estimator", "seeds", *columns),
        groups=[_rows(record, arithmetic, n) for arithmetic in ARITHMETICS],
        notes=(*coverage_notes(record), comparisons_note(found)),
    )


def _rows(record: ImageGrid, arithmetic: str, n: int) -> list[Row]:
    variants = {estimator: f"{arithmetic}/{estimator}" for estimator in LOOKS}
    cells = {measure: measure_cells(record, tuple(variants.values()), n, measure) for measure in MEASURES}
    return [
        (
            arithmetic,
            LOOKS[estimator][0],
            str(len(by_seed(record, variant, n))),
            *(
                cell
                for measure in MEASURES
                for cell in (cells[measure][variant], _difference(record, arithmetic, estimator, n, measure))
            ),
        )
        for estimator, variant in variants.items()
    ]


def _difference(record: ImageGrid, arithmetic: str, estimator: str, n: int, measure: str) -> Cell:
    if estimator == "standard":
        return ""
    return interval_cell(against(arithmetic, estimator).difference(record, n, measure), number_format(record, measure))


def verdicts(record: ImageGrid) -> list[str]:
    """Return one sentence per comparison that has a pair, about the last-5 averages."""
    n = sizes(record)[0]
    return [
        f"{arithmetic}: {pair.verdict(record, n)}"
        for arithmetic, pair in _comparisons()
        if pair.difference(record, n).pairs
    ]


ITEM = Item(
    label="arithmetic",
    record=ImageGrid,
    description="Does the gain of ABC depend on how the weights are normalized? Four arithmetics, three estimators.",
    table=table,
    findings=verdicts,
)
