"""Tables as HTML: rows of words, or a `Table` of the report; each scrolls in a box of its own where it is too wide."""

from __future__ import annotations

from collections.abc import Sequence

from truedrift.report.cell import Cell, is_bold, text_of
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.table import Table

_WIDE = 48
"""Letters from which on a cell may be broken."""
_MANY = 6
"""Columns beyond which a table is set smaller, with headers of several lines."""


def table(header: Sequence[Content], rows: Sequence[Sequence[Content]], *, caption: str | None = None) -> Markup:
    """One body of rows; the first cell of each names it."""
    return _table(header, [rows], caption)


def of_report(source: Table) -> list[Content]:
    """The groups as bodies, the best in bold, the notes below."""
    groups = [[[_shown(cell) for cell in row] for row in group] for group in source.groups]
    notes = [element("p", note, class_="soft small") for note in source.notes]
    return [_table(source.header, groups, source.caption), notes]


def _table(header: Sequence[Content], groups: Sequence[Sequence[Sequence[Content]]], caption: str | None) -> Markup:
    head = element("thead", element("tr", (element("th", cell, scope="col") for cell in header)))
    bodies = (element("tbody", (_row(row) for row in group)) for group in groups)
    box = element(
        "div",
        element("table", head, bodies, class_="many" if len(header) > _MANY else None),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption or "table",
    )
    return element("div", element("p", caption, class_="caption"), box) if caption else box


def _row(row: Sequence[Content]) -> Markup:
    first, *others = row or ("",)
    return element("tr", element("th", first, scope="row"), (_cell(cell) for cell in others))


def _cell(cell: Content) -> Markup:
    wide = isinstance(cell, str) and len(cell) > _WIDE
    return element("td", cell, class_="wrap" if wide else None)


def _shown(cell: Cell) -> Content:
    text = text_of(cell)
    return element("strong", text) if is_bold(cell) else text
