"""A section an item: what it is, its figure, its table with the paper's values, its text, and where it came from."""

from __future__ import annotations

import re
import sys
from typing import Any

from truedrift.records import Provenance
from truedrift.report.catalog import item_of
from truedrift.report.item import Item
from truedrift.report.page.markup import Content, element
from truedrift.report.page.pictures import drawn
from truedrift.report.page.tables import of_report


def section(record: Any) -> list[Content]:
    """One item."""
    item = item_of(record)
    table, figure = item.table(record), item.figure(record)
    text = element("pre", item.summary(record))
    folded = element("details", element("summary", "As text"), text) if table else text
    return [
        element("h3", item.label, id=anchor(item)),
        element("p", description(item)) if description(item) else None,
        element("div", drawn(figure, said=f"Figure {item.label}"), class_="sheet") if figure else None,
        of_report(table) if table else None,
        folded,
        element("p", _origin(item, record.provenance), class_="soft small"),
    ]


def anchor(item: Item) -> str:
    """The name of its section in addresses of the page."""
    return "item-" + re.sub(r"[^a-z0-9]+", "-", item.label.lower())


def description(item: Item) -> str:
    """The sentence that its module opens with, without the label."""
    said = (getattr(sys.modules.get(item.summary.__module__), "__doc__", None) or "").split("\n\n")[0]
    plain = re.sub(r"^`[^`]*`:\s*", "", " ".join(said.split())).replace("`", "")
    return plain[:1].upper() + plain[1:]


def _origin(item: Item, origin: Provenance) -> list[Content]:
    """The command, the time, the commit."""
    usual = "truedrift bias" if item.label == "bias" else f"truedrift reproduce {item.label}"
    made = element("code", origin.command) if origin.command else (element("code", usual), " or the like")
    commit = f"commit {_short(origin.commit)}" if origin.commit else "no commit"
    seconds = f"{origin.wall_seconds:,.0f} s" if origin.wall_seconds >= 1 else "less than 1 s"
    return ["Made by ", made, f", {origin.time}, truedrift {origin.version}, {commit}, seed {origin.seed}, {seconds}."]


def _short(commit: str) -> str:
    """Twelve digits, and whether files were changed since."""
    digits, dash, dirty = commit.partition("-")
    return f"{digits[:12]}{dash}{dirty}"
