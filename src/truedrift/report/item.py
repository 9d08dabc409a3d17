"""An item of the report: one figure or table, and how a record becomes files, text and findings."""

import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from truedrift.report.figure import save_figure
from truedrift.report.table import Table


def _none(record: Any) -> None:
    """Return None: the item has no table or no figure."""


def _no_lines(record: Any) -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class Item:
    """A figure or table of the paper, or one of our own studies, made from one record alone."""

    label: str
    """LaTeX label, for example "tab:baselines"; our own studies have a plain name."""
    record: type
    """Type of the records that this item shows."""
    description: str
    """One sentence for readers of the report page: what the item shows."""
    _: KW_ONLY
    table: Callable[[Any], Table | None] = _none
    figure: Callable[[Any], Figure | None] = _none
    findings: Callable[[Any], Sequence[str]] = _no_lines
    """Sentences that state what the numbers say."""
    screen_table: Callable[[Any], Table] | None = None
    """Table for the terminal, where it differs from `table`."""
    screen_notes: Callable[[Any], Sequence[str]] = _no_lines
    """Lines below the table in the terminal."""
    filename: str | None = None
    """Name of its files without suffix; None: the label with underscores."""

    def matches(self, record: Any) -> bool:
        """Return whether this item shows the record, by its type and by its label if the record has one."""
        return type(record) is self.record and getattr(record, "item", self.label) == self.label

    def save(self, record: Any, directory: Path) -> list[Path]:
        """Write the figure as PNG and PDF and the table as Markdown, LaTeX and CSV; return the paths."""
        name = self.filename or re.sub(r"\W", "_", self.label)
        figure, table = self.figure(record), self.table(record)
        figures = save_figure(figure, directory, name) if figure else []
        return figures + (table.save(directory, name) if table else [])

    def summary(self, record: Any) -> str:
        """Return the text for the terminal: caption, table, findings and notes."""
        table = (self.screen_table or self.table)(record)
        if table is None:
            return "\n".join((self.label, "", *self.findings(record)))
        blocks = (
            [f"{self.label}: {table.caption}"],
            table.aligned(),
            self.findings(record),
            [*table.notes, *self.screen_notes(record)],
        )
        return "\n\n".join("\n".join(block) for block in blocks if block)
