"""The status of a run, decided from its files alone.

| status     | last event in history.jsonl                                    |
|------------|----------------------------------------------------------------|
| COMPLETE   | `complete`, at the last step of the configuration or later      |
| STOPPED    | `interrupted`, or `complete` of a configuration with fewer steps |
| UNFINISHED | `started`, `resumed` or none: the run is training or was killed |

A run is done when metrics.jsonl has an evaluation at the last step, or, without evaluations, when that step was logged.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any

from truedrift.storage import read_json_lines
from truedrift.training.config import RunConfig
from truedrift.training.run_directory import HISTORY, METRICS

STARTS, ENDS = ("started", "resumed"), ("interrupted", "complete")
LATEST_BYTES = 1 << 16


class RunStatus(Enum):
    """State of a run according to its history."""

    COMPLETE = auto()
    STOPPED = auto()
    """The run was saved before its last step."""
    UNFINISHED = auto()
    """The run is still training or was killed."""


def run_status(history: Sequence[Mapping[str, Any]], steps: int) -> RunStatus:
    """Decide the status of a run from the last start or end in its history.

    Args:
        history: The entries of history.jsonl, in order.
        steps: The number of steps of the whole run.

    Returns:
        COMPLETE if the run ended complete at that step or later, STOPPED after any other end, else UNFINISHED.

    Example:
        >>> run_status([{"event": "started", "step": 0}, {"event": "interrupted", "step": 40}], 100)
        <RunStatus.STOPPED: 2>
    """
    last = last_event(history)
    step = last.get("step")
    if last.get("event") == "complete" and isinstance(step, int) and step >= steps:
        return RunStatus.COMPLETE
    return RunStatus.STOPPED if last.get("event") in ENDS else RunStatus.UNFINISHED


def last_event(history: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the last start or end in the history; an empty mapping if there is none."""
    return next((entry for entry in reversed(history) if entry.get("event") in (*STARTS, *ENDS)), {})


def is_done(run: Path, config: RunConfig) -> bool:
    """Return whether the run in that directory has taken and evaluated its last step."""
    steps, evaluated = config.cadence.steps, config.evaluation.extractor is not None
    return any(
        entry.get("step") == steps and ("evaluation" in entry or not evaluated) for entry in _latest_metrics(run)
    )


def steps_taken(run: Path, config: RunConfig) -> int:
    """Return the last logged step, at most the steps of the whole run."""
    steps = (entry.get("step") for entry in _latest_metrics(run))
    return min(config.cadence.steps, max((step for step in steps if isinstance(step, int)), default=0))


def _latest_metrics(run: Path) -> list[dict[str, Any]]:
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
    return datetime.fromisoformat(text) if isinstance(text, str) else None
