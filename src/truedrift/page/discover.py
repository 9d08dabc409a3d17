"""Paths given to `truedrift report` → records and run directories.

A path is a file of records, a run directory, or a directory that contains records and runs, directly or one level
below. A run or file that is passed directly must be readable. One that is found in a directory and cannot be read is
skipped with a message, unless nothing else is readable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.page.run_data import natural_key, pluralize
from truedrift.paper.catalog import ITEMS, find_item, latest, latest_readable
from truedrift.records.store import RECORDS
from truedrift.training.run_directory import CONFIG, HISTORY, METRICS, open_run


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
    records = {find_item(record).label: record for part in parts for record in part.records}
    runs: dict[Path, Path] = {}
    for run in (run for part in parts for run in part.runs):
        runs.setdefault(run.resolve(), run)
    return ReportInput(
        records=[records[label] for label in ITEMS if label in records],
        runs=list(runs.values()),
        problems=list(dict.fromkeys(problem for part in parts for problem in part.problems)),
    )


def _inputs_at(path: Path) -> list[ReportInput]:
    if path.is_file():
        return [ReportInput(records=latest(path))]
    if (path / CONFIG).is_file():
        return [_open(path)]
    candidates = list(_find_candidates(path)) if path.is_dir() else []
    if not candidates:
        raise UserError(
            f"{str(path)!r} contains no {RECORDS} and no run" if path.exists() else f"{str(path)!r} does not exist",
            "must be a directory written by truedrift train, reproduce or demo, or a directory of such directories",
            "pass another path, or run truedrift demo first",
        )
    # Open what is readable; raise the first error if nothing is.
    inputs, errors = [], []
    for candidate in candidates:
        try:
            inputs.append(_open(candidate))
        except (OSError, UserError) as error:
            errors.append((candidate, error))
    if not inputs:
        raise errors[0][1]
    return [*inputs, ReportInput(problems=[f"{path.name} is skipped: {error}." for path, error in errors])]


def _open(path: Path) -> ReportInput:
    """Open a run or a directory with records."""
    if not (path / CONFIG).is_file():
        records, count = latest_readable(path)
        problem = f"{pluralize(count, 'line')} of {path.resolve().name}/{RECORDS} cannot be read."
        return ReportInput(records=records, problems=[problem] if count else [])
    if not _has_started(path) and any(path.glob("*.safetensors")):
        raise UserError(
            f"{str(path)!r} contains only weights, not a run",
            f"must be a run, a directory with {RECORDS}, or a directory of such directories",
            f"pass the run that the weights are from, or evaluate them: truedrift evaluate {path} --data NAME",
        )
    open_run(path)
    return ReportInput(runs=[path])


def _find_candidates(directory: Path) -> Iterator[Path]:
    """Yield the directory itself if it has records, and the directories below it that have records or are runs."""
    if (directory / RECORDS).is_file():
        yield directory
    for below in sorted(directory.iterdir(), key=lambda path: natural_key(path.name)):
        if (below / RECORDS).is_file() or ((below / CONFIG).is_file() and _has_started(below)):
            yield below


def _has_started(path: Path) -> bool:
    """Return whether a training wrote to it; exported weights have a config.json, but neither of these files."""
    return (path / METRICS).is_file() or (path / HISTORY).is_file()
