"""How far a run of a grid is, from what it has written: steps, evaluations, seconds.

A run is done when metrics.jsonl holds an evaluation at its last step, or, if it is not judged at all, when that step
was logged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from truedrift.experiments.grids.plan import Task
from truedrift.training import metrics_log
from truedrift.training.run import HISTORY, METRICS

LATEST_BYTES = 1 << 16


def entries(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; none where there is no file yet."""
    path = run / METRICS
    return metrics_log.read(path) if path.exists() else []


def evaluated(run: Path) -> dict[int, dict[str, Any]]:
    """The lines that are evaluations, by step."""
    return {entry["step"]: entry for entry in entries(run) if "evaluation" in entry}


def steps_taken(task: Task, run: Path) -> int:
    """The last step that was written, at most those of the whole run."""
    return min(task.steps, max((entry.get("step", 0) for entry in _latest(run)), default=0))


def is_done(task: Task, run: Path) -> bool:
    """Whether nothing of the run is left to do."""
    judged = task.config.evaluation.extractor is not None
    return any(entry.get("step") == task.steps and ("evaluation" in entry or not judged) for entry in _latest(run))


def _latest(run: Path) -> list[dict[str, Any]]:
    """The last lines of metrics.jsonl, which may be long; what cannot be read is passed over here."""
    try:
        with (run / METRICS).open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - LATEST_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")[1 if start else 0 : -1]
    except OSError:
        return []
    return [entry for entry in map(_read, lines) if isinstance(entry, dict)]


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def seconds(run: Path) -> float:
    """Between start and end, over all starts; one that was killed left no end and is not counted."""
    return sum(_spans(run / HISTORY))


def _spans(history: Path) -> Iterator[float]:
    began: datetime | None = None
    for line in history.read_text(encoding="utf-8").splitlines() if history.exists() else ():
        entry = json.loads(line)
        now = datetime.fromisoformat(entry["time"])
        if entry["event"] in ("started", "resumed"):
            began = now
        elif entry["event"] in ("interrupted", "complete") and began is not None:
            yield (now - began).total_seconds()
            began = None
