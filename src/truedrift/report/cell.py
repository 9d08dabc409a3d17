"""Cells of a table: words, or numbers that know how they are shown and what they are in full.

Every cell has a text for people, which may be bold, and parts for a spreadsheet: its numbers with all their digits,
each under the name of what it is beside the column's own ("" for the number itself).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truedrift.report.latex import escape

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
        return shown(self.value, self.spec)

    def parts(self) -> Mapping[str, Part]:
        """The number."""
        return {"": self.value}


@dataclass(frozen=True)
class Spread:
    """Mean ± largest deviation from it over `count` values; a deviation of None is not shown, a mean of None a dash."""

    mean: float | None
    deviation: float | None
    count: int | None
    spec: str = ".2f"
    bold: bool = False
    note: str = ""

    def text(self) -> str:
        """6.40 ± 0.36, and the note."""
        beside = "" if self.deviation is None else f" ± {shown(self.deviation, self.spec)}"
        return f"{shown(self.mean, self.spec)}{beside} {self.note}".rstrip()

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
            return shown(self.mean, self.spec)
        return f"{shown(self.mean, self.spec)} [{shown(self.low, self.spec)}, {shown(self.high, self.spec)}]"

    def parts(self) -> Mapping[str, Part]:
        """The mean, both limits, and how many pairs."""
        return {"": self.mean, "low": self.low, "high": self.high, "pairs": self.pairs}


Cell = str | Scientific | Number | Spread | Interval
Row = Sequence[Cell]


def shown(value: float | None, spec: str) -> str:
    """The number by its format with a real minus sign, which zero never has; None is a dash."""
    if value is None:
        return DASH
    text = format(value, spec)
    zero = math.isfinite(value) and not any(digit in text for digit in "123456789")
    return text.lstrip("-") if zero else text.replace("-", "−")


def text_of(cell: Cell) -> str:
    """The cell for people, without its weight."""
    return cell if isinstance(cell, str) else cell.text()


def is_bold(cell: Cell) -> bool:
    """Whether the cell stands out."""
    return not isinstance(cell, str) and cell.bold


def parts_of(cell: Cell) -> Mapping[str, Part]:
    """The cell for a spreadsheet."""
    return {"": cell} if isinstance(cell, str) else cell.parts()


def markdown(cell: Cell) -> str:
    """Nothing in it ends the cell or the row."""
    text = " ".join(text_of(cell).split()).replace("|", "\\|")
    return f"**{text}**" if is_bold(cell) else text


def latex(cell: Cell) -> str:
    """Powers of ten are written out."""
    if isinstance(cell, Scientific) and cell.value is not None:
        return _power_of_ten(cell.value, bold=cell.bold)
    text = escape(text_of(cell))
    return f"\\textbf{{{text}}}" if is_bold(cell) else text


def _power_of_ten(value: float, *, bold: bool) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    text = f"{mantissa} \\times 10^{{{int(exponent)}}}"
    return f"$\\mathbf{{{text}}}$" if bold else f"${text}$"
