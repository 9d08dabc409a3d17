"""A measured ratio beside what it should be, and the table of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Result:
    """One row: `value` in `unit`, wanted to be at most or at least `bound`, or only reported."""

    what: str
    value: float
    unit: str = "×"
    direction: Literal["≤", "≥"] | None = None
    bound: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the bound is met; None without one."""
        if self.bound is None:
            return None
        return self.value <= self.bound if self.direction == "≤" else self.value >= self.bound

    def row(self) -> str:
        """A row of the Markdown table."""
        wanted = "" if self.bound is None else f"{self.direction} {self.bound:g}{_spaced(self.unit)}"
        verdict = {True: "yes", False: "**no**", None: ""}[self.holds]
        return f"| {self.what} | {self.value:.3g}{_spaced(self.unit)} | {wanted} | {verdict} |"


def _spaced(unit: str) -> str:
    return unit if unit == "×" else f" {unit}"


def table(title: str, results: Sequence[Result]) -> str:
    """A section of the results page."""
    head = ["| what | measured | wanted | holds |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", *head, *(result.row() for result in results)])
