"""How far a run of a grid is, from what it has written: steps, evaluations, seconds.

A run is done when metrics.jsonl holds an evaluation at its last step, or, if it is not judged at all, when that step
was logged.
"""

from __future__ import annotations

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
    """The lines of metrics.jsonl; none where there is no file yet."""
    path = run / METRICS
    return journal.read_metrics(path) if path.exists() else []


def evaluations_by_step(run: Path) -> dict[int, dict[str, Any]]:
    """The lines that are evaluations, by step."""
    return {entry["step"]: entry for entry in metrics_entries(run) if "evaluation" in entry}


def steps_taken(task: Task, run: Path) -> int:
    """The last step that was written, at most those of the whole run."""
    steps = (entry.get("step") for entry in _latest(run))
    return min(task.steps, max((step for step in steps if isinstance(step, int)), default=0))


def is_done(task: Task, run: Path) -> bool:
    """Whether nothing of the run is left to do."""
    judged = task.config.evaluation.extractor is not None
    return any(entry.get("step") == task.steps and ("evaluation" in entry or not judged) for entry in _latest(run))


def _latest(run: Path) -> list[dict[str, Any]]:
    """The last lines of metrics.jsonl, which may be long."""
    return read_json_lines(run / METRICS, last_bytes=LATEST_BYTES)


def wall_seconds(run: Path) -> float:
    """Between start and end, over all starts: an estimate where a process was killed and left no end.

    Such a one is counted to its last sign of life: when metrics.jsonl was last written, as the next start found it, or
    as it is now if there was none. A next start that does not tell that is itself taken for the sign.
    """
    return sum(_spans(run))


def _spans(run: Path) -> Iterator[float]:
    began: datetime | None = None
    for entry in read_json_lines(run / HISTORY):
        event, now = entry.get("event"), _time(entry.get("time"))
        if event not in (*STARTS, *ENDS) or now is None:
            continue
        if began is not None:
            end = now if event in ENDS else _time(entry.get("last_written")) or now
            yield max(0.0, (end - began).total_seconds())
        began = now if event in STARTS else None
    if began is not None and (run / METRICS).exists():
        written = datetime.fromtimestamp((run / METRICS).stat().st_mtime, UTC)
        yield max(0.0, (written - began).total_seconds())


def _time(text: Any) -> datetime | None:
    """None if it is no time with its zone."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None
