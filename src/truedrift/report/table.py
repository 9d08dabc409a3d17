"""Tables as Markdown and LaTeX: cells are text, and numbers of the form 1.2e-3 become powers of ten in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

Row = Sequence[str]

_IN_LATEX = (
    (r"^(-?[\d.]+)e([+-])0*(\d+)$", r"\\(\1 \\cdot 10^{\2\3}\\)"),
    (r"^(-[\d.]+)$", r"\\(\1\\)"),
    (r"\b([a-zA-Z])_(\w+)", r"\\(\1_{\\mathrm{\2}}\\)"),
    (r"τ′/τ", r"\\(\\tau'/\\tau\\)"),
    ("τ′", r"\\(\\tau'\\)"),
    ("τ", r"\\(\\tau\\)"),
    ("%", r"\\%"),
)
"""What a cell holds, and how LaTeX writes it."""


def save_table(directory: Path, name: str, header: Row, rows: Sequence[Row]) -> list[Path]:
    """Write NAME.md and NAME.tex; the first column is text, the others are numbers."""
    paths = [directory / f"{name}.md", directory / f"{name}.tex"]
    for path, text in zip(paths, (markdown(header, rows), latex(header, rows)), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def markdown(header: Row, rows: Sequence[Row]) -> str:
    """A Markdown table."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join("| " + " | ".join(row) + " |\n" for row in (header, rule, *rows))


def latex(header: Row, rows: Sequence[Row]) -> str:
    """A tabular of booktabs."""
    lines = [" & ".join(map(_latex_cell, row)) + r" \\" for row in (header, *rows)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}"
    return "\n".join((begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", ""))


def aligned(header: Row, rows: Sequence[Row]) -> str:
    """The same for a screen: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(_aligned_row(row, widths) for row in (header, *rows))


def _aligned_row(row: Row, widths: Sequence[int]) -> str:
    first, *others = zip(row, widths, strict=True)
    return "  ".join((first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others))).rstrip()


def _latex_cell(cell: str) -> str:
    for pattern, into in _IN_LATEX:
        cell = re.sub(pattern, into, cell)
    return cell
