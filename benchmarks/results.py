"""Measured values with their bounds, and the table of a section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Result:
    """One row: a value in a unit, with an upper or lower bound if there is one."""

    what: str
    value: float
    unit: str = "×"
    direction: Literal["≤", "≥"] | None = None
    bound: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the bound is met; None if there is no bound."""
        if self.bound is None:
            return None
        return self.value <= self.bound if self.direction == "≤" else self.value >= self.bound

    def row(self) -> str:
        """Return the row of the Markdown table."""
        wanted = "" if self.bound is None else f"{self.direction} {self.bound:g}{_format_unit(self.unit)}"
        holds = {True: "yes", False: "**no**", None: ""}[self.holds]
        return f"| {self.what} | {self.value:.3g}{_format_unit(self.unit)} | {wanted} | {holds} |"


def _format_unit(unit: str) -> str:
    return unit if unit == "×" else f" {unit}"


def table(title: str, results: Sequence[Result]) -> str:
    """Return the section as Markdown."""
    head = ["| what | measured | wanted | holds |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", *head, *(result.row() for result in results)])
