"""The files of runs: what the page shows, for a paper or a spreadsheet. What has nothing to show is not written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truedrift.page.charts import Charts, curves, gauge
from truedrift.page.run_data import Run, read_runs, runs_to_draw, sort_runs
from truedrift.page.tables import differences, final
from truedrift.report.figure import save_figure


def render_runs(paths: Sequence[Path], directory: Path) -> str:
    """The files of these run directories are written, and their paths are returned, a line each."""
    return "\n".join(f"written: {path}" for path in save_runs(sort_runs(read_runs(paths)), directory))


def save_runs(runs: Sequence[Run], directory: Path) -> list[Path]:
    """Figures of those that the page draws, and tables."""
    charts = Charts.of(runs_to_draw(runs))
    figures = {"curves": curves(charts), "gauge": gauge(charts)}
    tables = {"runs": final(runs), "differences": differences(runs)}
    return [
        *(path for name, figure in figures.items() if figure for path in save_figure(figure, directory, name)),
        *(path for name, table in tables.items() if table for path in table.save(directory, name)),
    ]
