"""What an item may offer beside files and text: a table, a figure, verdicts. The one place that asks for them."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from truedrift.report.item import Item
from truedrift.report.table import Table


def table(item: Item, record: Any) -> Table | None:
    """The item's table, with the paper's values beside ours."""
    return _called(item, "table", record)


def figure(item: Item, record: Any) -> Figure | None:
    """The item's figure."""
    return _called(item, "figure", record)


def verdicts(item: Item, record: Any) -> list[str]:
    """The item's findings, a sentence each."""
    return _called(item, "verdicts", record) or []


def _called(item: Item, name: str, record: Any) -> Any:
    function = getattr(item, name, None)
    return None if function is None else function(record)
