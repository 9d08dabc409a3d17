"""Words as LaTeX: what would be a command is escaped, and letters outside ASCII become commands.

Cells of a table: words, or numbers that know how they are shown and what they are in full.

Every cell has a text for people, which may be bold, and parts for a spreadsheet: its numbers with all their digits,
each under the name of what it is beside the column's own ("" for the number itself).

Tables as CSV (RFC 4180): numbers with all their digits, and no cell that a spreadsheet would take for a formula.

A cell of several numbers, such as a mean with its deviation, fills several columns: "best", "best deviation", …

Tables as Markdown, LaTeX and CSV, from cells that are numbers or words.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_ASCII = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
_BEYOND = {
    "τ′": r"$\tau'$",
    "τ": r"$\tau$",
    "−": "$-$",
    "µ": r"\textmu{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "→": r"$\rightarrow$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "β₁": r"$\beta_1$",
    "β₂": r"$\beta_2$",
    "¼": r"\textonequarter{}",
    "½": r"\textonehalf{}",
    "¾": r"\textthreequarters{}",
    "–": "--",
    "‖": r"$\|$",
    "…": r"\ldots{}",
}
_KNOWN = _ASCII | _BEYOND
_PATTERN = re.compile("|".join(map(re.escape, sorted(_KNOWN, key=len, reverse=True))))


def escape(text: str) -> str:
    """The text as LaTeX that prints it."""
    return _PATTERN.sub(lambda found: _KNOWN[found[0]], text)


DASH = "–"
"""Of what is not there."""

Part = float | int | str | None


@dataclass(frozen=True)
class Scientific:
    """A number shown as 1.23e-4 in Markdown and 1.23 × 10⁻⁴ in LaTeX; None is a dash."""

    value: float | None
    bold: bool = False

    def text(self) -> str:
        """1.23e-04."""
        return DASH if self.value is None else f"{self.value:.2e}"

    def parts(self) -> Mapping[str, Part]:
        """The number."""
        return {"": self.value}


@dataclass(frozen=True)
class Number:
    """A number shown by a format; None is a dash."""

    value: float | None
    spec: str = ".2f"
    bold: bool = False

    def text(self) -> str:
        """As the format says, with a real minus sign."""
        return format_number(self.value, self.spec)

    def parts(self) -> Mapping[str, Part]:
        """The number."""
        return {"": self.value}


@dataclass(frozen=True)
class MeanCell:
    """Mean ± largest deviation from it over `count` values; a deviation of None is not shown, a mean of None a dash."""

    mean: float | None
    deviation: float | None
    count: int | None
    spec: str = ".2f"
    bold: bool = False
    note: str = ""

    def text(self) -> str:
        """6.40 ± 0.36, and the note."""
        beside = "" if self.deviation is None else f" ± {format_number(self.deviation, self.spec)}"
        return f"{format_number(self.mean, self.spec)}{beside} {self.note}".rstrip()

    def parts(self) -> Mapping[str, Part]:
        """The mean, the deviation, of how many, and the note."""
        numbers: dict[str, Part] = {"": self.mean, "deviation": self.deviation, "count": self.count}
        return numbers | ({"note": self.note} if self.note else {})


@dataclass(frozen=True)
class Interval:
    """A mean difference of pairs with the limits of its interval; None are limits that a single pair does not give."""

    mean: float | None
    low: float | None
    high: float | None
    pairs: int
    spec: str = ".2f"

    bold = False

    def text(self) -> str:
        """−0.91 [−1.62, −0.20]."""
        if self.low is None or self.high is None:
            return format_number(self.mean, self.spec)
        mean, low, high = (format_number(value, self.spec) for value in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"

    def parts(self) -> Mapping[str, Part]:
        """The mean, both limits, and how many pairs."""
        return {"": self.mean, "low": self.low, "high": self.high, "pairs": self.pairs}


Cell = str | Scientific | Number | MeanCell | Interval
Row = Sequence[Cell]


def format_number(value: float | None, spec: str) -> str:
    """The number by its format with a real minus sign, which zero never has; None is a dash."""
    if value is None:
        return DASH
    text = format(value, spec)
    zero = math.isfinite(value) and not any(digit in text for digit in "123456789")
    return text.lstrip("-") if zero else text.replace("-", "−")


def cell_text(cell: Cell) -> str:
    """The cell for people, without its weight."""
    return cell if isinstance(cell, str) else cell.text()


def is_bold(cell: Cell) -> bool:
    """Whether the cell stands out."""
    return not isinstance(cell, str) and cell.bold


def cell_parts(cell: Cell) -> Mapping[str, Part]:
    """The cell for a spreadsheet."""
    return {"": cell} if isinstance(cell, str) else cell.parts()


def markdown(cell: Cell) -> str:
    """Nothing in it ends the cell or the row."""
    text = " ".join(cell_text(cell).split()).replace("|", "\\|")
    return f"**{text}**" if is_bold(cell) else text


def latex(cell: Cell) -> str:
    """Powers of ten are written out."""
    if isinstance(cell, Scientific) and cell.value is not None:
        return _power_of_ten(cell.value, bold=cell.bold)
    text = escape(cell_text(cell))
    return f"\\textbf{{{text}}}" if is_bold(cell) else text


def _power_of_ten(value: float, *, bold: bool) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    text = f"{mantissa} \\times 10^{{{int(exponent)}}}"
    return f"$\\mathbf{{{text}}}$" if bold else f"${text}$"


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
    writer.writerow([harmless(name) for name in _unique_headers(names)])
    for row in rows:
        known = [(cell_parts(cell), parts) for cell, parts in zip(row, columns, strict=True)]
        writer.writerow([_field(found.get(part)) for found, parts in known for part in parts])
    return file.getvalue()


def _parts(cells: Iterable[Cell]) -> list[str]:
    """The names of the parts that a column's cells have, in their order; the first one is always there."""
    found = (part for cell in cells for part, value in cell_parts(cell).items() if value is not None)
    return list(dict.fromkeys(["", *found]))


def _unique_headers(names: Iterable[str]) -> list[str]:
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


__all__ = ["Cell", "Interval", "MeanCell", "Number", "Row", "Scientific", "Table"]

FITTING_COLUMNS = 5
_FITTED = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"


@dataclass(frozen=True)
class Table:
    """A header, groups of rows that a rule separates, and sentences below."""

    caption: str
    label: str
    header: Sequence[str]
    groups: Sequence[Sequence[Row]]
    notes: Sequence[str] = ()

    @property
    def rows(self) -> list[Row]:
        """Of all groups."""
        return [row for group in self.groups for row in group]

    def markdown(self) -> str:
        """A Markdown table under its caption, and a list of the notes."""
        lines = [
            [markdown(cell) for cell in self.header],
            ["---"] * len(self.header),
            *([markdown(cell) for cell in row] for row in self.rows),
        ]
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join([self.caption, "", *("| " + " | ".join(line) + " |" for line in lines), *notes, ""])

    def latex(self) -> str:
        """A `table` of booktabs, one of many columns made as small as the line asks (graphicx)."""
        wide = len(self.header) > FITTING_COLUMNS
        groups = "\n\\midrule\n".join("\n".join(_latex_row(row) for row in group) for group in self.groups)
        return "\n".join(
            (
                "\\begin{table}[t]",
                "\\centering",
                f"\\caption{{{escape(self.caption)}}}",
                f"\\label{{{self.label}}}",
                "\\small",
                *([_FITTED] if wide else []),
                f"\\begin{{tabular}}{{@{{}}{'l' * 2}{'c' * (len(self.header) - 2)}@{{}}}}",
                "\\toprule",
                _latex_row(self.header),
                "\\midrule",
                groups,
                "\\bottomrule",
                "\\end{tabular}%\n}" if wide else "\\end{tabular}",
                *(f"\\par\\smallskip\\footnotesize {escape(note)}" for note in self.notes),
                "\\end{table}",
                "",
            )
        )

    def csv(self) -> str:
        """All digits of all numbers."""
        return comma_separated(self.header, self.rows)

    def aligned(self) -> str:
        """The rows for a screen, in columns."""
        rows = [[markdown(cell) for cell in row] for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )

    def screen(self, item: str, verdicts: Sequence[str]) -> str:
        """The item and the caption, the rows, the verdicts and the notes."""
        parts = (f"{item}: {self.caption}", "", self.aligned(), "", *verdicts, *([""] if verdicts else []))
        return "\n".join((*parts, *self.notes)).rstrip()

    def save(self, directory: Path, name: str) -> list[Path]:
        """Write all three forms; half of a character, as a file name may have, is written as a question mark."""
        forms = {"md": self.markdown(), "tex": self.latex(), "csv": self.csv()}
        paths = [directory / f"{name}.{kind}" for kind in forms]
        for path, text in zip(paths, forms.values(), strict=True):
            path.write_text(text, encoding="utf-8", errors="replace", newline="")
        return paths


def _latex_row(row: Row) -> str:
    return " & ".join(latex(cell) for cell in row) + " \\\\"
