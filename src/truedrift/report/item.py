"""An item of the report: a kind of record, and how it becomes files, text, a table, a figure and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from truedrift.report.table import Table


def _nothing(record: Any) -> None:
    """Of an item that has no table, or no figure."""


def _no_verdicts(record: Any) -> list[str]:
    """Of an item that only shows."""
    return []


@dataclass(frozen=True)
class Item:
    """`save(record, directory)` writes figures and tables and returns their paths; `summary(record)` is text.

    `table` and `figure` are what `save` writes, None where there is none; `verdicts` are sentences, the findings.
    """

    label: str
    kind: type
    save: Callable[[Any, Path], list[Path]]
    summary: Callable[[Any], str]
    table: Callable[[Any], Table | None] = _nothing
    figure: Callable[[Any], Figure | None] = _nothing
    verdicts: Callable[[Any], list[str]] = _no_verdicts

    def draws(self, record: Any) -> bool:
        """Whether this item is made from this record: by its kind, and by its label where the record names one."""
        return type(record) is self.kind and getattr(record, "item", self.label) == self.label
