"""What the directories that a user names hold: records, runs, or directories with either, one level below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift.records import RECORDS
from truedrift.report.catalog import ITEMS, item_of, latest
from truedrift.training.run import CONFIG, HISTORY, METRICS, open_run
from truedrift.validation import mistake


@dataclass(frozen=True, kw_only=True)
class Found:
    """The last record of every item, in the order of ITEMS, and the directories of runs as they were named."""

    records: Sequence[Any]
    runs: Sequence[Path]


def find(places: Sequence[Path]) -> Found:
    """Everything in these directories and files; a Mistake where one holds nothing, or something unreadable."""
    runs: dict[Path, Path] = {}
    records: dict[str, Any] = {}
    for place in places:
        for path in _sources(place):
            if _is_run(path):
                open_run(path)
                runs.setdefault(path.resolve(), path)
            else:
                records |= {item_of(record).label: record for record in latest(path)}
    in_order = [records[item.label] for item in ITEMS if item.label in records]
    return Found(records=in_order, runs=list(runs.values()))


def _sources(place: Path) -> Iterable[Path]:
    if place.is_file() or (place / CONFIG).is_file():
        return [place]
    found = list(_inside(place)) if place.is_dir() else []
    if not found:
        raise mistake(
            f"{str(place)!r} holds no {RECORDS} and no run" if place.exists() else f"{str(place)!r} does not exist",
            "allowed is a directory that truedrift train, reproduce or demo wrote, or one with such directories",
            "run for example truedrift demo",
        )
    return found


def _inside(place: Path) -> Iterator[Path]:
    """Its own records, and the runs and records one level below."""
    if (place / RECORDS).is_file():
        yield place
    for below in sorted(place.iterdir()):
        if (below / RECORDS).is_file() or (_is_run(below) and _has_begun(below)):
            yield below


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file()


def _has_begun(path: Path) -> bool:
    """Exported weights have a config.json too, and neither of these."""
    return (path / METRICS).is_file() or (path / HISTORY).is_file()
