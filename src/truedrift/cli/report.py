"""`truedrift report DIR…`: records and runs → figures, tables and one HTML page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from truedrift.records import writable_directory
from truedrift.report.page import Found, find, write_page
from truedrift.report.rendered import rendered
from truedrift.validation import mistake

PAGE = "report.html"
SEVERAL = Path("runs/report")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw figures, write tables, and tell it all on one HTML page, from records and runs alone.

    Figures are PNG and PDF; the last record of each item counts. Two runs or more are compared: what differs in their
    configurations, curves, final numbers, samples. Nothing is computed again.

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
            raise mistake("no directory was named", "allowed are one or more", "name for example runs/demo")
        found = find(places)
        beside = places[0] if places[0].is_dir() else places[0].parent
        out = writable_directory(self.out or (beside if len(places) == 1 else SEVERAL))
        return partial(_report, found, out, self.title or f"truedrift: {', '.join(map(_name, places))}")


def _name(place: Path) -> str:
    return place.resolve().name


def _report(found: Found, out: Path, title: str) -> str:
    said = [rendered(record, out) for record in found.records]
    page = write_page(out / PAGE, title=title, records=found.records, runs=found.runs, problems=found.problems)
    return "\n\n".join((*said, *found.problems, f"page: {page}"))
