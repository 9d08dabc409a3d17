"""Tables as CSV (RFC 4180): numbers with all their digits, and no cell that a spreadsheet would take for a formula.

A cell of several numbers, such as a mean with its deviation, fills several columns: "best", "best deviation", …
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from itertools import count

from truedrift.report.cell import Cell, Part, Row, parts_of

_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""What begins a formula, and the same in full width."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


def comma_separated(header: Sequence[str], rows: Iterable[Row]) -> str:
    """A line for the names of the columns, and one a row."""
    rows = list(rows)
    columns = [_parts(row[k] for row in rows) for k in range(len(header))]
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    names = [f"{name} {part}".strip() for name, parts in zip(header, columns, strict=True) for part in parts]
    writer.writerow([harmless(name) for name in _distinct(names)])
    for row in rows:
        known = [(parts_of(cell), parts) for cell, parts in zip(row, columns, strict=True)]
        writer.writerow([_field(found.get(part)) for found, parts in known for part in parts])
    return file.getvalue()


def _parts(cells: Iterable[Cell]) -> list[str]:
    """The names of the parts that a column's cells have, in their order; the first one is always there."""
    found = (part for cell in cells for part, value in parts_of(cell).items() if value is not None)
    return list(dict.fromkeys(["", *found]))


def _distinct(names: Iterable[str]) -> list[str]:
    """A name that was there already gets a number."""
    taken: dict[str, None] = {}
    for name in names:
        candidates = (name if k == 1 else f"{name} ({k})" for k in count(1))
        taken[next(each for each in candidates if each not in taken)] = None
    return list(taken)


def _field(part: Part) -> str:
    if part is None:
        return ""
    return harmless(part) if isinstance(part, str) else repr(part)


def harmless(text: str) -> str:
    """The text, after an apostrophe if it begins like a formula and is no number."""
    formula = text.lstrip().startswith(_FORMULA) or text.startswith(("\t", "\r", "\n"))
    return f"'{text}" if formula and not _NUMBER.fullmatch(text) else text
