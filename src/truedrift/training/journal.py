"""What a run writes while it trains, and reads when it resumes: metrics.jsonl, TensorBoard's files, checkpoints.

RUN/metrics.jsonl holds one JSON object per line. A checkpoint stores the length of the file at its time. Lines that a
killed process wrote after its last checkpoint will be computed again, so a resumed run removes them, and the file
becomes identical to that of an uninterrupted run. The one exception is an evaluation of the checkpoint itself, which a
run has if it was evaluated after it was complete.

Only rank 0 has a journal; the other processes receive what they need from it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from truedrift import distributed
from truedrift.errors import UserError
from truedrift.storage import parse_json_line, read_json_lines, sync_directory, write_all
from truedrift.training import checkpoint
from truedrift.training.run_directory import METRICS, RunDirectory, write_errors_as_user_errors
from truedrift.training.state import TrainingState
from truedrift.training.telemetry import TensorBoard

LATEST_BYTES = 1 << 16
Notify = Callable[[str], None]
"""Receives messages for the user."""


# ---- metrics.jsonl ----


class MetricsLog:
    """The file, opened for appending and created if it is missing. A torn last line is removed.

    Args:
        path: The file metrics.jsonl, in an existing directory.

    Raises:
        UserError: If the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with write_errors_as_user_errors(path.parent):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            os.ftruncate(self._descriptor, path.read_bytes().rfind(b"\n") + 1)
            sync_directory(path.parent)

    @classmethod
    def resume(cls, path: Path, offset: int) -> MetricsLog:
        """Open the file after truncating it to its first `offset` bytes, which must be whole lines."""
        content = path.read_bytes() if path.exists() else b""
        if not 0 <= offset <= len(content) or (offset and content[offset - 1 : offset] != b"\n"):
            raise UserError(
                f"{str(path)!r} does not match the checkpoint, which was saved when the file had {offset} bytes",
                "must contain every line that was written before the checkpoint",
                "restore the file, or start the run again in another directory",
            )
        with write_errors_as_user_errors(path.parent):
            if path.exists():
                os.truncate(path, offset)
        return cls(path)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append one line. It survives a crash of the process, and after `offset()` also a crash of the machine."""
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
        with write_errors_as_user_errors(self.path.parent):
            write_all(self._descriptor, line.encode())

    def offset(self) -> int:
        """Wait until the file is on disk, and return its length."""
        with write_errors_as_user_errors(self.path.parent):
            os.fsync(self._descriptor)
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file. Nothing is buffered."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read every entry of a metrics.jsonl.

    Args:
        path: The file RUN/metrics.jsonl.

    Returns:
        One dictionary per line, in order. A torn last line is left out.

    Raises:
        UserError: If the file or one of its lines cannot be read.
    """
    return read_json_lines(path, strict=True)


# ---- Journal ----


@dataclass
class RunProgress:
    """The progress of a run, apart from its weights."""

    step: int = 0
    """Number of steps taken."""
    skipped: int = 0
    """How many of them were skipped because loss or gradient was not finite."""
    best: dict[str, Any] | None = None
    """Step and FID of the evaluation with the smallest FID."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the last logged step."""
    energy: list[list[float]] = field(default_factory=list)
    """Sums of the energy distance since the last log (`EnergyAverage`)."""

    def record_fid(self, fid: Any) -> None:
        """Record the FID of the current step, which becomes the best step if its FID is the smallest so far."""
        if isinstance(fid, float) and math.isfinite(fid) and (self.best is None or fid < self.best["fid"]):
            self.best = {"step": self.step, "fid": fid}


class RunJournal:
    """The files of a run, opened at its newest valid checkpoint, which is loaded into `state`."""

    def __init__(self, run: RunDirectory, state: TrainingState, notify: Notify) -> None:
        self.run, self.state, self.notify = run, state, notify
        # Load the newest checkpoint.
        self.progress, offset = self._load_checkpoint()
        step = self.progress.step
        # Describe the start before the metrics are opened, which changes their time of modification.
        start = {"step": step, "processes": distributed.size(), **self._last_written()}
        # Open the files where that checkpoint left them.
        self._log = self._open_log(self._offset_after_late_evaluation(offset))
        self._tensorboard = TensorBoard(run.path / "tensorboard", step, notify)
        run.append_history("started" if step == 0 else "resumed", **start)
        notify(f"{self._start_message()} in {run.path}")

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Append a line of metrics; its numbers must be finite or None."""
        self._log.append(metrics)
        self._tensorboard.add(metrics)

    def has_evaluation(self) -> bool:
        """Return whether the log holds an evaluation of the current step."""
        latest = read_json_lines(self.run.path / METRICS, last_bytes=LATEST_BYTES)
        return any(self._is_evaluation(entry) for entry in latest)

    def save(self) -> None:
        """Save a checkpoint of the current state, and prune older ones."""
        progress, cadence = self.progress, self.run.config.cadence
        facts = {
            "metrics_offset": self._log.offset(),
            "skipped": progress.skipped,
            "best": progress.best,
            "metrics": {name: value for name, value in progress.metrics.items() if name != "timing"},
            "energy": progress.energy,
        }
        saved = checkpoint.Checkpoint(progress.step, self.state.tensors(), facts)
        checkpoint.save(self.run.checkpoints, saved, run=self.run.id)
        best = None if progress.best is None else progress.best["step"]
        checkpoint.prune(self.run.checkpoints, keep_last=cadence.keep_last, keep_every=cadence.keep_every, best=best)

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._tensorboard.close()

    def _load_checkpoint(self) -> tuple[RunProgress, int]:
        """Load the newest valid checkpoint; return its progress and the length of the metrics at its time."""
        latest = checkpoint.latest_checkpoint(self.run.checkpoints, run=self.run.id)
        for message in latest.skipped:
            self.notify(message)
        if latest.checkpoint is not None:
            facts = latest.checkpoint.facts
            self.state.load(latest.checkpoint.tensors)
            progress = RunProgress(latest.checkpoint.step, facts["skipped"], facts["best"], dict(facts["metrics"]))
            progress.energy = facts.get("energy", [])  # older checkpoints have none
            return progress, facts["metrics_offset"]
        damaged = checkpoint.steps(self.run.checkpoints)
        if damaged:  # a new start would overwrite what may still be recovered
            raise UserError(
                f"none of the {len(damaged)} checkpoints in {str(self.run.checkpoints)!r} can be used "
                f"({latest.skipped[0]})",
                "at least one must be as it was saved",
                "restore one, or remove them all to start again",
            )
        return RunProgress(), 0

    def _open_log(self, offset: int) -> MetricsLog:
        """Open the log as it was at the checkpoint. A log that was lost or changed does not cost the weights."""
        path = self.run.path / METRICS
        try:
            return MetricsLog.resume(path, offset)
        except UserError as error:
            self.notify(f"{error.summary}; continuing with the lines that exist")
            return MetricsLog(path)

    def _offset_after_late_evaluation(self, offset: int) -> int:
        """Return the length of the log including an evaluation that was written after its checkpoint."""
        path = self.run.path / METRICS
        line, newline, _ = (path.read_bytes()[offset:] if path.exists() else b"").partition(b"\n")
        entry = parse_json_line(line)
        if not newline or entry is None or not self._is_evaluation(entry):
            return offset
        self.progress.record_fid(entry["evaluation"].get("fid"))
        return offset + len(line + newline)

    def _is_evaluation(self, entry: Mapping[str, Any]) -> bool:
        return entry.get("step") == self.progress.step and isinstance(entry.get("evaluation"), dict)

    def _last_written(self) -> dict[str, str]:
        """Return when the metrics were last written: the end of an earlier process that was killed."""
        path = self.run.path / METRICS
        if not path.exists():
            return {}
        return {"last_written": datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")}

    def _start_message(self) -> str:
        step, steps = self.progress.step, self.run.config.cadence.steps
        if step >= steps:
            return f"all {steps} steps are already done"
        if step:
            return f"resuming at step {step} of {steps} steps"
        fixed = self.run.config.optimizer.schedule == "cosine"  # a longer run would be another run
        schedule = " with a cosine schedule, which fixes the length of the run" if fixed else ""
        return f"{self.run.config.recipe}: {steps} steps{schedule}"
