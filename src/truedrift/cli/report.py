"""`truedrift report DIR…`: records and runs → figures, tables and one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from truedrift.errors import UserError
from truedrift.page.discover import ReportInput, find_inputs
from truedrift.page.page import write_page
from truedrift.page.saved import render_runs
from truedrift.paper.catalog import find_item, render_record
from truedrift.records.store import writable_directory

PAGE = "report.html"
SEVERAL = Path("runs/report")
NAMED = 3
"""Places in the title."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw figures, write tables, and tell it all on one HTML page, from records and runs alone.

    Figures are PNG and PDF, tables Markdown, LaTeX and CSV; the last record of each item counts. Two runs or more are
    compared: what differs in their configurations, curves, final numbers, samples. Nothing is computed again.

    Try it:
      truedrift report runs/demo
      truedrift report runs/digits-… runs/digits-… --out runs/compared
      truedrift report runs/fig_bias_loglog-cpu --out figures
    """

    directories: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Runs, directories with records.jsonl, or directories with such directories in them."""

    out: Path | None = None
    """Directory for the files; that which was named, or runs/report if several were."""

    title: str | None = None
    """Of the page."""

    def prepare(self) -> Callable[[], str]:
        """Read the records, look at the runs and check the directory."""
        places = self.directories
        if not places:
            raise UserError("no directory was named", "allowed are one or more", "name for example runs/demo")
        found = find_inputs(places)
        beside = places[0] if places[0].is_dir() else places[0].parent
        out = writable_directory(self.out or (beside if len(places) == 1 else SEVERAL))
        return partial(_report, found, out, self.title or _title(places))


def _title(places: Sequence[Path]) -> str:
    names = [place.resolve().name for place in places]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"truedrift: {', '.join(names[:NAMED])}{more}"


def _report(found: ReportInput, out: Path, title: str) -> str:
    """A record that cannot be drawn is told and passed over, unless nothing else is there."""
    said, shown, failures = [], [], []
    for record in found.records:
        try:
            said.append(render_record(record, out))
            shown.append(record)
        except UserError as error:
            failures.append((find_item(record).label, error))
    if failures and not shown and not found.runs:
        raise failures[0][1]
    problems = [*found.problems, *(f"{label} is passed over: {error}." for label, error in failures)]
    of_runs = render_runs(found.runs, out)
    page = write_page(out / PAGE, title=title, records=shown, runs=found.runs, problems=problems)
    return "\n\n".join(filter(None, (*said, of_runs, *problems, f"page: {page}")))
