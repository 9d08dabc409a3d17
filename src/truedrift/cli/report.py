"""`truedrift report DIR…`: write figures, tables and one HTML page from records and runs."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from truedrift.cli.options.studies import Report
from truedrift.errors import UserError, error_text
from truedrift.page.discover import ReportInput, find_inputs
from truedrift.page.page import PAGE, render_runs, write_page
from truedrift.page.run_data import read_runs
from truedrift.paper.catalog import find_item, render_record
from truedrift.progress import Progress
from truedrift.progress_display import ProgressDisplay
from truedrift.records.store import writable_directory
from truedrift.storage import write_atomically

COMPARISON = Path("runs/report")
"""Output directory for several inputs."""
TITLE_NAMES = 3
"""Number of inputs named in the title."""


def prepare(command: Report) -> Callable[[], str]:
    """Find the records and runs, and check the output directory."""
    paths = command.directories
    if not paths:
        raise UserError("no directory was given", "must be one or more", "pass for example runs/demo")
    inputs = find_inputs(paths)
    beside = paths[0] if paths[0].is_dir() else paths[0].parent
    out = command.out or (beside if len(paths) == 1 else COMPARISON)
    # The title names the first inputs.
    names = [path.resolve().name for path in paths]
    more = f" and {len(names) - TITLE_NAMES} more" if len(names) > TITLE_NAMES else ""
    title = command.title or f"truedrift: {', '.join(names[:TITLE_NAMES])}{more}"
    return partial(_report, inputs, writable_directory(out), title)


def _report(inputs: ReportInput, out: Path, title: str) -> str:
    """Write files and page; return the text to print.

    A record that cannot be drawn is skipped with a message, unless there is nothing else to show.
    """
    with tempfile.TemporaryDirectory(prefix="truedrift-report-") as name, ProgressDisplay() as progress:
        folder = Path(name)
        text = _write_report(inputs, folder, title, progress).replace(name, str(out))
        _copy_files(folder, out)
    return text


def _copy_files(folder: Path, out: Path) -> None:
    """Copy all files of a folder. If that fails, as on a full disk, none of the new ones is left."""
    added = []
    try:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            target = out / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(target):
                added.append(target)
            write_atomically(target, path.read_bytes())
    except OSError:
        for target in added:
            target.unlink(missing_ok=True)
        raise


def _write_report(inputs: ReportInput, out: Path, title: str, progress: Progress) -> str:
    """Write files and page to a new folder; return the text to print."""
    texts, drawn, failures = [], [], []
    parts = len(inputs.records) + 3  # the records, then runs, their figures, and the page
    for number, record in enumerate(inputs.records):
        progress("writing the report", number, parts)
        try:
            texts.append(_draw(record, out))
            drawn.append(record)
        except UserError as error:
            failures.append((find_item(record).label, error))
    if failures and not drawn and not inputs.runs:
        raise failures[0][1]
    problems = [*inputs.problems, *(f"{label} is skipped: {error}." for label, error in failures)]
    progress("writing the report", parts - 3, parts)
    runs = read_runs(inputs.runs)
    progress("writing the report", parts - 2, parts)
    texts.append(render_runs(runs, out))
    progress("writing the report", parts - 1, parts)
    page = write_page(out / PAGE, title=title, records=drawn, runs=runs, problems=problems)
    return "\n\n".join(filter(None, (*texts, *problems, f"page: {page}")))


def _draw(record: Any, out: Path) -> str:
    """Write the files of a record, whose fields may not fit each other although each has the right type."""
    try:
        return render_record(record, out)
    except (OSError, UserError):
        raise
    except Exception as error:
        problem = f"the record cannot be drawn ({type(error).__name__}: {error_text(error)})"
        fix = "compute it again with truedrift reproduce"
        raise UserError(problem, "its fields must fit each other", fix) from None
