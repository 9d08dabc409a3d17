"""Paths given to `truedrift report` → records and run directories.

A path is a file of records, a run directory, or a directory that contains records and runs, directly or one level
below. A run or file that is given itself must be readable. One that is found in a directory need not be: it is skipped
with a sentence, unless nothing else is readable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.page.run_data import natural_key, pluralize
from truedrift.paper.catalog import ITEMS, find_item, latest, latest_readable
from truedrift.records.store import RECORDS
from truedrift.training.run_directory import CONFIG, HISTORY, METRICS, is_run, open_run


@dataclass(frozen=True, kw_only=True)
class ReportInput:
    """The last record of every item, in the order of `ITEMS`, and the run directories."""

    records: Sequence[Any] = ()
    runs: Sequence[Path] = ()
    problems: Sequence[str] = ()
    """Sentences on what is skipped."""


def find_inputs(paths: Sequence[Path]) -> ReportInput:
    """Find the records and runs in these files and directories.

    Args:
        paths: Files of records, run directories, or directories that contain them.

    Returns:
        Records and runs, each once.

    Raises:
        UserError: If a path contains neither records nor runs, or if nothing in it is readable.
    """
    parts = [part for path in paths for part in _inputs_at(path)]
    runs: dict[Path, Path] = {}
    for run in (run for part in parts for run in part.runs):
        runs.setdefault(run.resolve(), run)
    records = {find_item(record).label: record for part in parts for record in part.records}
    return ReportInput(
        records=[records[item.label] for item in ITEMS if item.label in records],
        runs=list(runs.values()),
        problems=list(dict.fromkeys(problem for part in parts for problem in part.problems)),
    )


def _inputs_at(path: Path) -> list[ReportInput]:
    if path.is_file():
        return [ReportInput(records=latest(path))]
    if _has_config(path):
        return [_open_run(path)]
    candidates = list(_find_candidates(path)) if path.is_dir() else []
    if not candidates:
        raise UserError(
            f"{str(path)!r} contains no {RECORDS} and no run" if path.exists() else f"{str(path)!r} does not exist",
            "must be a directory written by truedrift train, reproduce or demo, or a directory of such directories",
            "pass another path, or run truedrift demo first",
        )
    return _open_readable(candidates)


def _open_readable(paths: Sequence[Path]) -> list[ReportInput]:
    """Open what is readable and note the rest; raise the first error if nothing is readable."""
    inputs, errors = [], []
    for path in paths:
        try:
            inputs.append(_open_run(path) if _has_config(path) else _open_records(path))
        except (OSError, ValueError) as error:
            errors.append((path, error))
    if not inputs:
        raise errors[0][1]
    problems = [f"{path.name} is skipped: {str(error).replace(str(path), path.name)}." for path, error in errors]
    return [*inputs, ReportInput(problems=problems)]


def _open_run(path: Path) -> ReportInput:
    if not _has_started(path) and not is_run(path) and any(path.glob("*.safetensors")):
        raise UserError(
            f"{str(path)!r} contains only weights, not a run",
            f"must be a run, a directory with {RECORDS}, or a directory of such directories",
            f"pass the run that the weights are from, or evaluate them: truedrift evaluate {path} --data NAME",
        )
    open_run(path)
    return ReportInput(runs=[path])


def _open_records(path: Path) -> ReportInput:
    records, count = latest_readable(path)
    problem = f"{pluralize(count, 'line')} of {path.resolve().name}/{RECORDS} cannot be read."
    return ReportInput(records=records, problems=[problem] if count else [])


def _find_candidates(directory: Path) -> Iterator[Path]:
    """The directory itself if it has records, and the directories below it that have records or are runs."""
    if (directory / RECORDS).is_file():
        yield directory
    for below in sorted(directory.iterdir(), key=lambda path: natural_key(path.name)):
        if (below / RECORDS).is_file() or (_has_config(below) and _has_started(below)):
            yield below


def _has_config(path: Path) -> bool:
    return (path / CONFIG).is_file()


def _has_started(path: Path) -> bool:
    """Whether a training wrote to it; exported weights have a config.json, but neither of these files."""
    return (path / METRICS).is_file() or (path / HISTORY).is_file()
