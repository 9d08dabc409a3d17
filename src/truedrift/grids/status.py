"""Status of a run of a grid, read from its files: steps, evaluations, seconds.

A run is done when metrics.jsonl has an evaluation at the last step, or, without evaluations, when that step was logged.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from truedrift.grids.plan import Task
from truedrift.storage import read_json_lines
from truedrift.training import journal
from truedrift.training.run_directory import HISTORY, METRICS

LATEST_BYTES = 1 << 16
STARTS, ENDS = ("started", "resumed"), ("interrupted", "complete")


def metrics_entries(run: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl; an empty list if there is no file yet."""
    path = run / METRICS
    return journal.read_metrics(path) if path.exists() else []


def evaluations_by_step(run: Path) -> dict[int, dict[str, Any]]:
    """Return the lines with an evaluation, by step."""
    return {entry["step"]: entry for entry in metrics_entries(run) if "evaluation" in entry}


def steps_taken(task: Task, run: Path) -> int:
    """Return the last logged step, at most the steps of the whole run."""
    steps = (entry.get("step") for entry in _latest(run))
    return min(task.steps, max((step for step in steps if isinstance(step, int)), default=0))


def is_done(task: Task, run: Path) -> bool:
    """Return whether the run is complete."""
    evaluated = task.config.evaluation.extractor is not None
    return any(entry.get("step") == task.steps and ("evaluation" in entry or not evaluated) for entry in _latest(run))


def _latest(run: Path) -> list[dict[str, Any]]:
    """Return the last lines of metrics.jsonl, which may be long."""
    return read_json_lines(run / METRICS, last_bytes=LATEST_BYTES)


def wall_seconds(run: Path) -> float:
    """Return the seconds between start and end, summed over all starts of the run.

    This is an estimate if a process was killed and logged no end. It is then counted up to the last write of
    metrics.jsonl, as the next start recorded it, or as the file shows if there was no next start. If the next start
    recorded no such time, it is counted up to that start.
    """
    return sum(_spans(run))


def _spans(run: Path) -> Iterator[float]:
    start: datetime | None = None
    for entry in read_json_lines(run / HISTORY):
        event, now = entry.get("event"), _time(entry.get("time"))
        if event not in (*STARTS, *ENDS) or now is None:
            continue
        if start is not None:
            end = now if event in ENDS else _time(entry.get("last_written")) or now
            yield max(0.0, (end - start).total_seconds())
        start = now if event in STARTS else None
    if start is not None and (run / METRICS).exists():
        written = datetime.fromtimestamp((run / METRICS).stat().st_mtime, UTC)
        yield max(0.0, (written - start).total_seconds())


def _time(text: Any) -> datetime | None:
    """Parse a time; return None unless it is a time with a zone."""
    try:
        parsed = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return parsed if parsed.tzinfo is not None else None
