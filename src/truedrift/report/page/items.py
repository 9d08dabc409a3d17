"""A section an item: what it is, its figure, its table with the paper's values, its text, and where it came from."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from truedrift.report.catalog import item_of
from truedrift.report.item import Item
from truedrift.report.page import optional
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.pictures import SHOWN_PER_INCH, drawn, picture
from truedrift.report.page.tables import of_report

WIDEST = 1200
SAVED_PER_INCH = 300
"""Pixels of a figure that an item writes."""


def section(record: Any) -> list[Content]:
    """One item."""
    item = item_of(record)
    table = optional.table(item, record)
    text = element("pre", item.summary(record))
    folded = element("details", element("summary", "As text"), text) if table else text
    return [
        element("h3", item.label),
        element("p", description(item)) if description(item) else None,
        [element("div", each, class_="sheet") for each in _figures(item, record)],
        of_report(table) if table else None,
        folded,
        element("p", _origin(item, record), class_="soft small"),
    ]


def description(item: Item) -> str:
    """The sentence that its module opens with, without the label."""
    said = (getattr(sys.modules.get(item.summary.__module__), "__doc__", None) or "").split("\n\n")[0]
    plain = re.sub(r"^`[^`]*`:\s*", "", " ".join(said.split())).replace("`", "")
    return plain[:1].upper() + plain[1:]


def _figures(item: Item, record: Any) -> list[Markup]:
    """Its figure; where it offers none by itself, those that it writes."""
    said = f"Figure {item.label}"
    figure = optional.figure(item, record)
    if figure is not None:
        return [drawn(figure, said=said)]
    with tempfile.TemporaryDirectory() as directory:
        paths = item.save(record, Path(directory)) if not optional.offers_figure(item) else []
        return [picture(path, widest=WIDEST, said=said, size=SHOWN_PER_INCH / SAVED_PER_INCH) for path in _pngs(paths)]


def _pngs(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if path.suffix == ".png"]


def _origin(item: Item, record: Any) -> list[Content]:
    """The command, the time, the commit."""
    origin, command = record.provenance, getattr(record, "command", None)
    usual = "truedrift bias" if item.label == "bias" else f"truedrift reproduce {item.label}"
    made = element("code", command) if command else (element("code", usual), " or the like")
    commit = f"commit {_short(origin.commit)}" if origin.commit else "no commit"
    seconds = f"{origin.wall_seconds:,.0f} s" if origin.wall_seconds >= 1 else "less than 1 s"
    return ["Made by ", made, f", {origin.time}, truedrift {origin.version}, {commit}, seed {origin.seed}, {seconds}."]


def _short(commit: str) -> str:
    """Twelve digits, and whether files were changed since."""
    digits, dash, dirty = commit.partition("-")
    return f"{digits[:12]}{dash}{dirty}"
