"""`tab:cifar100`: distance of standard and ABC on CIFAR-100 for a single seed, with the paper's values."""

from truedrift.grids.results import ImageGrid
from truedrift.paper.grid_tables import (
    ABC_AGAINST_STANDARD,
    MEASURES,
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
        "standard": ((4.17, None), (4.06, None)),
        "abc": ((4.05, None), (3.74, None)),
        "difference": ((-0.12, None), (-0.32, None)),
    },
    16: {
        "standard": ((2.64, None), (2.52, None)),
        "abc": ((2.52, None), (2.40, None)),
        "difference": ((-0.12, None), (-0.12, None)),
    },
    32: {
        "standard": ((6.72, None), (4.36, None)),
        "abc": ((2.75, None), (2.36, None)),
        "difference": ((-3.97, None), (-2.00, None)),
    },
}
"""n → last-5 average and best FID on CIFAR-100 of one seed, as the paper prints them."""


def table(record: ImageGrid) -> Table:
    """Return three rows per n: standard, ABC, and their difference."""
    name = record.protocol.distance_name
    columns = [column for measure in MEASURES for column in (f"{measure} {name}", f"{measure}, paper")]
    found = [each for n in sizes(record) for each in ABC_AGAINST_STANDARD.differences(record, n)]
    return Table(
        caption=(
            f"{name} on {record.data} for standard and ABC by references n of a class; {_seeds(record)}. "
            f"{protocol_line(record)} Paper: FID on CIFAR-100, a single seed."
        ),
        label="tab:cifar100",
        header=("n", "estimator", "seeds", "epochs", *columns),
        groups=[_rows(record, n) for n in sizes(record)],
        notes=(*coverage_notes(record), comparisons_note(found)),
    )


def _seeds(record: ImageGrid) -> str:
    count = len({run.seed for run in runs_with_evaluations(record)})
    return "a single seed, hence no interval" if count == 1 else f"mean ± largest deviation over {count} seeds"


def _rows(record: ImageGrid, n: int) -> list[Row]:
    epochs = one_or_all(run.epochs for run in runs_with_evaluations(record) if run.n == n)
    return comparison_rows(record, ABC_AGAINST_STANDARD, n, PAPER.get(n, {}), (epochs,))


def verdicts(record: ImageGrid) -> list[str]:
    """Return one sentence per n, about the last-5 averages."""
    return [f"n = {n}: {ABC_AGAINST_STANDARD.verdict(record, n)}" for n in sizes(record)]


ITEM = Item(
    label="tab:cifar100",
    record=ImageGrid,
    description="Distance of standard and ABC on CIFAR-100 for a single seed, with the paper's values.",
    table=table,
    findings=verdicts,
)
