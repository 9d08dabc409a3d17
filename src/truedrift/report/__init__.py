"""What all figures and tables share: items, tables, statistics over seeds, figure style, and text for the terminal."""

from truedrift.report.statistics import Paired, holm_paired, mean_and_deviation, mean_cell, paired, rolling_mean
from truedrift.report.table import (
    Interval,
    MeanCell,
    Number,
    Scientific,
    Table,
    cell_text,
    escape,
    format_number,
    is_bold,
)

__all__ = [
    "Interval",
    "MeanCell",
    "Number",
    "Paired",
    "Scientific",
    "Table",
    "cell_text",
    "escape",
    "format_number",
    "holm_paired",
    "is_bold",
    "mean_and_deviation",
    "mean_cell",
    "paired",
    "rolling_mean",
]
