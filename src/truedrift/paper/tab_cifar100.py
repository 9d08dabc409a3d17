"""`tab:cifar100`: distance of standard and ABC on CIFAR-100 for a single seed, with the paper's values."""

from truedrift.grids.record import ImageGrid
from truedrift.paper.grid_tables import protocol_line
from truedrift.paper.tab_main_results import Paper, comparison_table, findings
from truedrift.report.item import Item
from truedrift.report.table import Table

PAPER: Paper = {
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
    count = len({run.seed for run in record.runs})
    seeds = "a single seed, so there is no interval" if count == 1 else f"mean ± largest deviation over {count} seeds"
    caption = (
        f"{record.protocol.distance_name} on {record.data} for standard and ABC with n references per class; {seeds}. "
        f"{protocol_line(record)} Paper: FID on CIFAR-100, a single seed."
    )
    return comparison_table(record, "tab:cifar100", caption, PAPER, {"epochs": lambda run: run.epochs})


ITEM = Item(
    "tab:cifar100",
    ImageGrid,
    "Distance of standard and ABC on CIFAR-100 for a single seed, with the paper's values.",
    table=table,
    findings=findings,
)
