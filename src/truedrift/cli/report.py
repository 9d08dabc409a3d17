"""`truedrift report DIR…`: write figures, tables and one HTML page from records and runs."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from truedrift.storage import scratch_directory, sync_directory, write_new

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
    temporary = Path(tempfile.gettempdir())
    with scratch_directory(temporary, "truedrift-report-") as folder, ProgressDisplay() as progress:
        text = _write_report(inputs, folder, title, progress).replace(str(folder), str(out))
        _copy_files(folder, out)
    return text


def _copy_files(folder: Path, out: Path) -> None:
    """Copy all files of a folder. All are complete under hidden names before the first one is renamed.

    If the copying fails, as on a full disk, the old files stay and none of the new ones is left. Only a kill or an
    error between two renames leaves files of both.
    """
    copies = {out / path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    hidden = {target: target.with_name(f".{target.name}.writing") for target in copies}
    with _locked(out):
        try:
            for target, path in copies.items():
                with _name_in_errors(target):
                    if target.is_dir() and not target.is_symlink():
                        problem = f"{str(target)!r} is a directory"
                        raise UserError(problem, "must be a file, or not exist", "rename it, or pass another --out")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    hidden[target].unlink(missing_ok=True)  # of a killed process
                    write_new(hidden[target], path.read_bytes())
            for target in copies:
                with _name_in_errors(target):
                    os.replace(hidden[target], target)
        except BaseException:
            for path in hidden.values():
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            raise
        for directory in {target.parent for target in copies}:
            sync_directory(directory)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Wait until no other report is written to the directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _name_in_errors(target: Path) -> Iterator[None]:
    """Name the file, and not its hidden copy, in an OSError."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None


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
