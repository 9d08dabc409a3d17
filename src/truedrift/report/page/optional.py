"""What an item may offer beside files and text: a table, a figure, verdicts; and a table, notes and cells that know
their own text. The one place that asks whether they do."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from truedrift.report.item import Item
from truedrift.report.table import Cell, Table


def table(item: Item, record: Any) -> Table | None:
    """The item's table, with the paper's values beside ours."""
    return _called(item, "table", record)


def figure(item: Item, record: Any) -> Figure | None:
    """The item's figure."""
    return _called(item, "figure", record)


def verdicts(item: Item, record: Any) -> list[str]:
    """The item's findings, a sentence each."""
    return _called(item, "verdicts", record) or []


def notes(of: Table) -> list[str]:
    """Sentences below the table."""
    return list(getattr(of, "notes", ()))


def text(cell: Cell) -> str:
    """A cell for people."""
    if isinstance(cell, str):
        return cell
    own = getattr(cell, "text", None)
    return own() if own is not None else _scientific(cell)


def _scientific(cell: Any) -> str:
    return "–" if cell.value is None else f"{cell.value:.2e}"


def bold(cell: Cell) -> bool:
    """Whether it stands out."""
    return not isinstance(cell, str) and cell.bold


def offers_figure(item: Item) -> bool:
    """Whether the item was asked for a figure at all; else it only writes files."""
    return hasattr(item, "figure")


def _called(item: Item, name: str, record: Any) -> Any:
    function = getattr(item, name, None)
    return None if function is None else function(record)
