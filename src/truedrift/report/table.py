"""Tables as Markdown, LaTeX, CSV and text for a terminal, from cells that are words or numbers.

A cell has a text for people, which may be bold, and parts for CSV: its numbers with all their digits. The parts of a
cell with several numbers, such as a mean with its deviation, fill several CSV columns: "best", "best deviation", ….
In LaTeX, characters that would be commands are escaped, and characters outside ASCII become commands.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

from truedrift.storage import write_atomically

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
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
_PATTERN = re.compile("|".join(map(re.escape, sorted(_LATEX, key=len, reverse=True))))


def escape(text: str) -> str:
    r"""Return LaTeX code that prints the text.

    Args:
        text: Plain text. Commands in it would be printed, not executed.

    Returns:
        The text with special characters escaped and other symbols, such as τ and ±, as commands.

    Example:
        >>> print(escape("5 % ± τ"))
        5 \% $\pm$ $\tau$
    """
    return _PATTERN.sub(lambda match: _LATEX[match[0]], text)


DASH = "–"
"""Text of a missing value."""


@dataclass(frozen=True)
class Number:
    """A number shown by a format; None is a dash."""

    value: float | None
    spec: str = ".2f"
    bold: bool = False

    def text(self) -> str:
        """Return the formatted number with a Unicode minus sign."""
        return format_number(self.value, self.spec)


class Scientific(Number):
    """A number shown as 1.23e-04 in Markdown and 1.23 × 10⁻⁴ in LaTeX; None is a dash."""

    def text(self) -> str:
        """Return for example 1.23e-04, with a plain minus sign."""
        return DASH if self.value is None else f"{self.value:.2e}"


@dataclass(frozen=True)
class MeanCell:
    """Mean ± largest deviation over `count` values; a deviation of None is not shown, a mean of None is a dash."""

    mean: float | None
    deviation: float | None
    count: int | None
    spec: str = ".2f"
    bold: bool = False
    note: str = ""

    def text(self) -> str:
        """Return for example 6.40 ± 0.36, followed by the note."""
        deviation = "" if self.deviation is None else f" ± {format_number(self.deviation, self.spec)}"
        return f"{format_number(self.mean, self.spec)}{deviation} {self.note}".rstrip()


@dataclass(frozen=True)
class Interval:
    """Mean difference of pairs with the limits of its interval; the limits are None for a single pair."""

    mean: float | None
    low: float | None
    high: float | None
    pairs: int
    spec: str = ".2f"

    bold = False

    def text(self) -> str:
        """Return for example −0.91 [−1.62, −0.20]."""
        if self.low is None or self.high is None:
            return format_number(self.mean, self.spec)
        mean, low, high = (format_number(value, self.spec) for value in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


Cell = str | Number | MeanCell | Interval
Row = Sequence[Cell]


def format_number(value: float | None, spec: str) -> str:
    """Format a number for a text.

    Args:
        value: The number; None is a dash.
        spec: Format such as ".2f".

    Returns:
        The number with a Unicode minus sign. A number that is shown as zero has no sign.

    Example:
        >>> format_number(-0.5, ".2f"), format_number(-0.001, ".2f"), format_number(None, ".2f")
        ('−0.50', '0.00', '–')
    """
    if value is None:
        return DASH
    text = format(value, spec)
    zero = math.isfinite(value) and not any(digit in text for digit in "123456789")
    return text.lstrip("-") if zero else text.replace("-", "−")


def cell_text(cell: Cell) -> str:
    """Return the text of the cell without markup."""
    return cell if isinstance(cell, str) else cell.text()


def is_bold(cell: Cell) -> bool:
    """Return whether the cell is bold."""
    return not isinstance(cell, str) and cell.bold


def cell_parts(cell: Cell) -> dict[str, Any]:
    """Return the parts of the cell for CSV, each under its name; "" is the number itself."""
    if isinstance(cell, str):
        return {"": cell}
    names = [field.name for field in fields(cell) if field.name not in ("spec", "bold")]
    values = {name: getattr(cell, name) for name in names}
    return {"": values.pop(names[0]), **{name: value for name, value in values.items() if value not in (None, "")}}


def markdown(cell: Cell) -> str:
    """Return the cell as Markdown, with line breaks and bars escaped."""
    text = " ".join(cell_text(cell).split()).replace("|", "\\|")
    return f"**{text}**" if is_bold(cell) else text


def latex(cell: Cell) -> str:
    """Return the cell as LaTeX, with powers of ten written out."""
    if isinstance(cell, Scientific) and cell.value is not None:
        mantissa, exponent = cell.text().split("e")
        text = f"{mantissa} \\times 10^{{{int(exponent)}}}"
        return f"$\\mathbf{{{text}}}$" if cell.bold else f"${text}$"
    text = escape(cell_text(cell))
    return f"\\textbf{{{text}}}" if is_bold(cell) else text


def _part_names(cells: Iterable[Cell]) -> list[str]:
    """Return the names of the parts that the cells of a column have, in their order, starting with ""."""
    return list(dict.fromkeys(["", *(part for cell in cells for part in cell_parts(cell))]))


def _unique_headers(names: Iterable[str]) -> list[str]:
    """Append a number to every repeated name."""
    taken: dict[str, None] = {}
    for name in names:
        candidates = (name if k == 1 else f"{name} ({k})" for k in count(1))
        taken[next(each for each in candidates if each not in taken)] = None
    return list(taken)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Pad cells to the width of their column, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join((str.ljust if k == 0 else str.rjust)(cell, widths[k]) for k, cell in enumerate(row)).rstrip()
        for row in rows
    ]


FITTING_COLUMNS = 5
_FITTED = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"


@dataclass(frozen=True)
class Table:
    """A header, groups of rows with rules between them, and notes below."""

    caption: str
    label: str
    header: Sequence[str]
    groups: Sequence[Sequence[Row]]
    notes: Sequence[str] = ()

    @property
    def rows(self) -> list[Row]:
        """Rows of all groups."""
        return [row for group in self.groups for row in group]

    def markdown(self) -> str:
        """Return the caption, a Markdown table, and a list of the notes."""
        lines = [
            [markdown(cell) for cell in self.header],
            ["---"] * len(self.header),
            *([markdown(cell) for cell in row] for row in self.rows),
        ]
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join([self.caption, "", *("| " + " | ".join(line) + " |" for line in lines), *notes, ""])

    def latex(self) -> str:
        """Return a booktabs table; a table with many columns is shrunk to the line width (graphicx)."""
        wide = len(self.header) > FITTING_COLUMNS
        rows = ["\n".join(_latex_row(row) for row in group) for group in ([self.header], *self.groups)]
        lines = [
            "\\begin{table}[t]",
            "\\centering",
            f"\\caption{{{escape(self.caption)}}}",
            f"\\label{{{self.label}}}",
            "\\small",
            *([_FITTED] if wide else []),
            f"\\begin{{tabular}}{{@{{}}{'l' * 2}{'c' * (len(self.header) - 2)}@{{}}}}",
            "\\toprule",
            "\n\\midrule\n".join(rows),
            "\\bottomrule",
            "\\end{tabular}%\n}" if wide else "\\end{tabular}",
            *(f"\\par\\smallskip\\footnotesize {escape(note)}" for note in self.notes),
            "\\end{table}",
            "",
        ]
        return "\n".join(lines)

    def csv(self) -> str:
        """Return CSV (RFC 4180) with all digits of all numbers: the column names, then one line per row."""
        columns = [_part_names(row[k] for row in self.rows) for k in range(len(self.header))]
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\r\n")
        names = [f"{name} {part}".strip() for name, parts in zip(self.header, columns, strict=True) for part in parts]
        writer.writerow(_unique_headers(names))
        for row in self.rows:
            cells = [(cell_parts(cell), parts) for cell, parts in zip(row, columns, strict=True)]
            writer.writerow([values.get(part) for values, parts in cells for part in parts])
        return file.getvalue()

    def aligned(self) -> list[str]:
        """Return the lines of the table for a terminal."""
        rows = (self.header, *self.rows)
        return align_columns([[f"**{cell_text(c)}**" if is_bold(c) else cell_text(c) for c in row] for row in rows])

    def save(self, directory: Path, name: str) -> list[Path]:
        """Write Markdown, LaTeX and CSV files; return their paths.

        Characters that UTF-8 cannot encode, which file names may contain, become question marks.
        """
        forms = {"md": self.markdown(), "tex": self.latex(), "csv": self.csv()}
        paths = [directory / f"{name}.{kind}" for kind in forms]
        for path, text in zip(paths, forms.values(), strict=True):
            write_atomically(path, text.encode(errors="replace"), sync=False)
        return paths


def _latex_row(row: Row) -> str:
    return " & ".join(latex(cell) for cell in row) + " \\\\"
