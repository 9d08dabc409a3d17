"""An item of the report: a kind of record, and how it becomes files, text, a table, a figure and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

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


def typeset(figure: Figure) -> Figure:
    """The figure with the fonts of the paper."""
    for text in figure.findobj(Text):
        text.set(family="STIXGeneral", math_fontfamily="stix")
    return figure


def save_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write the figure as PNG and PDF."""
    png = directory / f"{name}.png"
    typeset(figure).savefig(png, dpi=300)
    figure.savefig(png.with_suffix(".pdf"), metadata={"CreationDate": None})
    return [png, png.with_suffix(".pdf")]
