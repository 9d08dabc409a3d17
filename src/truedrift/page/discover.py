"""What the directories that a user names hold: records, runs, or directories with either, one level below.

What is named itself must be readable. What is found below need not be: it is passed over with a sentence, unless
nothing else is there.
"""

from __future__ import annotations

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
    """The last record of every item, in the order of ITEMS, and the directories of runs as they were named."""

    records: Sequence[Any] = ()
    runs: Sequence[Path] = ()
    problems: Sequence[str] = ()
    """Sentences on what is passed over."""


def find_inputs(places: Sequence[Path]) -> ReportInput:
    """Everything in these directories and files; a Mistake where one holds nothing, or is itself unreadable."""
    parts = [part for place in places for part in _parts(place)]
    runs: dict[Path, Path] = {}
    for path in (path for part in parts for path in part.runs):
        runs.setdefault(path.resolve(), path)
    records = {find_item(record).label: record for part in parts for record in part.records}
    return ReportInput(
        records=[records[item.label] for item in ITEMS if item.label in records],
        runs=list(runs.values()),
        problems=list(dict.fromkeys(problem for part in parts for problem in part.problems)),
    )


def _parts(place: Path) -> list[ReportInput]:
    """Of one place."""
    if place.is_file():
        return [ReportInput(records=latest(place))]
    if _has_config(place):
        return [_run(place)]
    inside = list(_paths_inside(place)) if place.is_dir() else []
    if not inside:
        raise UserError(
            f"{str(place)!r} holds no {RECORDS} and no run" if place.exists() else f"{str(place)!r} does not exist",
            "allowed is a directory that truedrift train, reproduce or demo wrote, or one with such directories",
            "run for example truedrift demo",
        )
    return _readable(inside)


def _readable(paths: Sequence[Path]) -> list[ReportInput]:
    """Those that can be read, and a sentence on each of the others; where there are only those, the first one's."""
    found, failures = [], []
    for path in paths:
        try:
            found.append(_run(path) if _has_config(path) else _records(path))
        except (OSError, ValueError) as error:
            failures.append((path, error))
    if not found:
        raise failures[0][1]
    return [*found, ReportInput(problems=[_skipped_note(*failure) for failure in failures])]


def _skipped_note(path: Path, error: Exception) -> str:
    reason = str(error).replace(str(path), path.name)
    return f"{path.name} is passed over: {reason}."


def _run(path: Path) -> ReportInput:
    if not _has_begun(path) and not is_run(path) and any(path.glob("*.safetensors")):
        raise UserError(
            f"{str(path)!r} is a folder of weights, which tells nothing of a training",
            f"allowed is a run, a directory with {RECORDS}, or one with such directories",
            f"name the run that the weights are of, or judge them: truedrift evaluate {path} --data NAME",
        )
    open_run(path)
    return ReportInput(runs=[path])


def _records(path: Path) -> ReportInput:
    found, unreadable = latest_readable(path)
    said = f"{pluralize(unreadable, 'line')} of {path.resolve().name}/{RECORDS} cannot be read."
    return ReportInput(records=found, problems=[said] if unreadable else [])


def _paths_inside(place: Path) -> Iterator[Path]:
    """Its own records, and the runs and records one level below."""
    if (place / RECORDS).is_file():
        yield place
    for below in sorted(place.iterdir(), key=lambda path: natural_key(path.name)):
        if (below / RECORDS).is_file() or (_has_config(below) and _has_begun(below)):
            yield below


def _has_config(path: Path) -> bool:
    return (path / CONFIG).is_file()


def _has_begun(path: Path) -> bool:
    """Exported weights have a config.json too, and neither of these."""
    return (path / METRICS).is_file() or (path / HISTORY).is_file()
