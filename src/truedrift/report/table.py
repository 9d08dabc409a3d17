"""Tables as Markdown and LaTeX, from cells that are numbers or words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SPECIAL = re.compile(r"([&%$#_{}])")


@dataclass(frozen=True)
class Scientific:
    """A number shown as 1.23e-4 in Markdown and 1.23 × 10⁻⁴ in LaTeX; None is a dash."""

    value: float | None
    bold: bool = False


Cell = str | Scientific
Row = Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """A header, and groups of rows that a rule separates."""

    caption: str
    label: str
    header: Sequence[str]
    groups: Sequence[Sequence[Row]]

    def markdown(self) -> str:
        """A Markdown table under its caption."""
        rows = [row for group in self.groups for row in group]
        lines = [
            [_markdown(cell) for cell in self.header],
            ["---"] * len(self.header),
            *([_markdown(cell) for cell in row] for row in rows),
        ]
        return "\n".join([self.caption, "", *("| " + " | ".join(line) + " |" for line in lines), ""])

    def latex(self) -> str:
        """A `table` of booktabs."""
        groups = "\n\\midrule\n".join("\n".join(_latex_row(row) for row in group) for group in self.groups)
        return "\n".join(
            (
                "\\begin{table}[t]",
                "\\centering",
                f"\\caption{{{_escape(self.caption)}}}",
                f"\\label{{{self.label}}}",
                "\\small",
                f"\\begin{{tabular}}{{@{{}}{'l' * 2}{'c' * (len(self.header) - 2)}@{{}}}}",
                "\\toprule",
                _latex_row(self.header),
                "\\midrule",
                groups,
                "\\bottomrule",
                "\\end{tabular}",
                "\\end{table}",
                "",
            )
        )

    def aligned(self) -> str:
        """The rows for a screen, in columns."""
        rows = [[_markdown(cell) for cell in row] for row in (self.header, *(row for of in self.groups for row in of))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )

    def save(self, directory: Path, name: str) -> list[Path]:
        """Write both forms."""
        markdown, latex = directory / f"{name}.md", directory / f"{name}.tex"
        markdown.write_text(self.markdown(), encoding="utf-8")
        latex.write_text(self.latex(), encoding="utf-8")
        return [markdown, latex]


def _markdown(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell.replace("|", "\\|")
    text = "–" if cell.value is None else f"{cell.value:.2e}"
    return f"**{text}**" if cell.bold else text


def _latex_row(row: Row) -> str:
    return " & ".join(_latex(cell) for cell in row) + " \\\\"


def _latex(cell: Cell) -> str:
    if isinstance(cell, str):
        return _escape(cell)
    if cell.value is None:
        return "--"
    mantissa, exponent = f"{cell.value:.2e}".split("e")
    text = f"{mantissa} \\times 10^{{{int(exponent)}}}"
    return f"$\\mathbf{{{text}}}$" if cell.bold else f"${text}$"


_GREEK = {
    "τ′": r"$\tau'$",
    "τ": r"$\tau$",
    "−": "$-$",
    "µ": r"\textmu{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "–": "--",
}


def _escape(text: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", text.replace("\\", "\\textbackslash "))
    for letter, command in _GREEK.items():
        escaped = escaped.replace(letter, command)
    return escaped
