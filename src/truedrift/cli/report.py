"""`truedrift report DIR`: records → figures and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from truedrift.cli.reproduce import rendered
from truedrift.records import writable_directory
from truedrift.report.catalog import latest


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw figures (PNG, PDF) and write tables (Markdown, LaTeX) from records alone.

    The last record of each item counts. Nothing is computed again.

    Try it:
      truedrift report runs/demo
      truedrift report runs/fig_bias_loglog-cpu --out figures
    """

    directory: Annotated[Path, tyro.conf.Positional]
    """Directory with records.jsonl, or such a file."""

    out: Path | None = None
    """Directory for the files; that of the records if none is named."""

    def prepare(self) -> Callable[[], str]:
        """Read the records and check the directory."""
        records = latest(self.directory)
        beside = self.directory if self.directory.is_dir() else self.directory.parent
        return partial(_report, records, writable_directory(self.out or beside))


def _report(records: list[Any], out: Path) -> str:
    return "\n\n".join(rendered(record, out) for record in records)
