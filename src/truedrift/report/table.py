"""Tables as Markdown, LaTeX and CSV, from cells that are numbers or words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from truedrift.report import cell as cells
from truedrift.report.cell import Cell, Interval, Number, Row, Scientific, Spread
from truedrift.report.latex import escape
from truedrift.report.spreadsheet import comma_separated

__all__ = ["Cell", "Interval", "Number", "Row", "Scientific", "Spread", "Table"]

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
            [cells.markdown(cell) for cell in self.header],
            ["---"] * len(self.header),
            *([cells.markdown(cell) for cell in row] for row in self.rows),
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
        rows = [[cells.markdown(cell) for cell in row] for row in (self.header, *self.rows)]
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
    return " & ".join(cells.latex(cell) for cell in row) + " \\\\"
