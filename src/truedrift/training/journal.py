"""RUN/metrics.jsonl: one JSON object a line, only appended to, and cut back on resume to where the checkpoint was.

A checkpoint stores `offset()`, the bytes that were on the disk when it was made. What a killed process wrote after it
will be computed again, so `resume` removes it, and the file becomes the same as that of a run that was never killed.

JSON has no NaN and no infinity: a number that is not finite is written as null.

What a run leaves on the disk while it goes on, and finds there: metrics.jsonl, TensorBoard's files, checkpoints.

A checkpoint holds the length of metrics.jsonl at its time; what was written after it is cut off and computed again.
Only an evaluation of the checkpoint itself stays there: a run that was complete before it was judged has one. One
process of a run keeps the ledger; the others get from it what they need.
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
from truedrift.training.checkpoint import prune
from truedrift.training.run_directory import METRICS, RunDirectory
from truedrift.training.state import TrainingState
from truedrift.training.telemetry import TensorBoard


class MetricsLog:
    """The file, opened for appending and made if it is missing; a last line that a crash left torn is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            os.ftruncate(self._descriptor, _end_of_last_line(path))
            sync_directory(path.parent)
        except OSError as error:
            raise _not_written(path, error) from None

    @classmethod
    def resume(cls, path: Path, offset: int) -> MetricsLog:
        """The file cut back to its first `offset` bytes, which must be whole lines."""
        _require_whole_lines(path, offset)
        try:
            if path.exists():
                os.truncate(path, offset)
        except OSError as error:
            raise _not_written(path, error) from None
        return cls(path)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one line, given to the system at once: it outlives the process, and after `offset()` the machine."""
        line = json.dumps(_finite(entry), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            write_all(self._descriptor, line.encode())
        except OSError as error:
            raise _not_written(self.path, error) from None

    def offset(self) -> int:
        """The length of the file, all of it on the disk."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _not_written(self.path, error) from None
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file; nothing is buffered."""
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
    """Every entry, in order; a last line without an end was torn by a crash and is left out."""
    try:
        content = path.read_bytes()
    except OSError as error:
        came = f"{str(path)!r} cannot be read ({error.strerror})"
        raise UserError(came, "allowed is the metrics.jsonl of a run", "check its name") from None
    return [_entry(path, number, line) for number, line in enumerate(content.split(b"\n")[:-1], start=1)]


def _entry(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        came = f"line {number} of {str(path)!r} is not a JSON object"
        raise UserError(came, "allowed is one a line", "remove that line")
    return entry


def _end_of_last_line(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def _require_whole_lines(path: Path, offset: int) -> None:
    """The file has `offset` bytes, and the last of them ends a line."""
    length = path.stat().st_size if path.exists() else 0
    do = "restore the file, or start the run anew in another directory"
    if not 0 <= offset <= length:
        came = f"{str(path)!r} has {length} bytes and the checkpoint was made at {offset}"
        raise UserError(came, "allowed is a file with everything that the checkpoint has seen", do)
    if offset and _byte_before(path, offset) != b"\n":
        came = f"{str(path)!r} has no end of a line at {offset}, where the checkpoint was made"
        raise UserError(came, "allowed is the file of that run, unchanged", do)


def _byte_before(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset - 1)
        return file.read(1)


def _finite(value: Any) -> Any:
    """The value with null for every number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _not_written(path: Path, error: OSError) -> UserError:
    return UserError(
        f"the metrics cannot be written to {str(path)!r} ({error.strerror})",
        "allowed is a file that can be written, with space for it",
        "make room or make it writable, and run the same command again",
    )


LATEST_BYTES = 1 << 16
Notify = Callable[[str], None]
"""Gets sentences that a person should see."""


@dataclass
class RunProgress:
    """How far a run is, beside its weights."""

    step: int = 0
    """Steps taken."""
    skipped: int = 0
    """Of them, those that were not finite."""
    best: dict[str, Any] | None = None
    """The evaluated step with the smallest FID."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Of the last logged step."""

    def judged(self, fid: Any) -> None:
        """Where it stands is the best if this is the smallest FID so far."""
        if isinstance(fid, float) and math.isfinite(fid) and (self.best is None or fid < self.best["fid"]):
            self.best = {"step": self.step, "fid": fid}


class RunJournal:
    """Opened where the newest checkpoint left it, whose state is loaded."""

    def __init__(self, run: RunDirectory, state: TrainingState, tell: Notify) -> None:
        self.run, self.state, self.tell = run, state, tell
        self.standing, offset = self._read()
        step = self.standing.step
        written = self._last_written()
        self._log = self._opened(self._behind_late_evaluation(offset))
        self._board = TensorBoard(run.path / "tensorboard", step, tell)
        run.note("started" if step == 0 else "resumed", step=step, processes=distributed.size(), **written)
        tell(f"{self._begun()} in {run.path}")

    def _begun(self) -> str:
        step, steps = self.standing.step, self.run.config.cadence.steps
        if step >= steps:
            return f"all {steps} steps were taken before"
        return f"going on from step {step} of {steps} steps" if step else f"{self.run.config.recipe}: {steps} steps"

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Add a line of metrics."""
        self._log.append(metrics)
        self._board.add(metrics)

    def has_evaluation(self) -> bool:
        """Whether the step where the run stands is evaluated in the log."""
        latest = read_json_lines(self.run.path / METRICS, last_bytes=LATEST_BYTES)
        return any(self._is_evaluation(entry) for entry in latest)

    def save(self) -> None:
        """A checkpoint of the state where it stands; older ones go as the cadence says."""
        standing, cadence = self.standing, self.run.config.cadence
        facts = {
            "metrics_offset": self._log.offset(),
            "skipped": standing.skipped,
            "best": standing.best,
            "metrics": {name: value for name, value in standing.metrics.items() if name != "timing"},
            "positives_seen": self.run.config.positives_seen(standing.step),
        }
        saved = checkpoint.Checkpoint(standing.step, self.state.tensors(), facts)
        checkpoint.save(self.run.checkpoints, saved, run=self.run.id)
        best = None if standing.best is None else standing.best["step"]
        prune(self.run.checkpoints, keep_last=cadence.keep_last, keep_every=cadence.keep_every, best=best)

    def close(self) -> None:
        """Close what is open."""
        self._log.close()
        self._board.close()

    def _read(self) -> tuple[RunProgress, int]:
        """Where the newest whole checkpoint stands, and how long the metrics were then."""
        found = checkpoint.latest_checkpoint(self.run.checkpoints, run=self.run.id)
        for sentence in found.passed_over:
            self.tell(sentence)
        if found.checkpoint is not None:
            facts = found.checkpoint.facts
            self.state.load(found.checkpoint.tensors)
            standing = RunProgress(found.checkpoint.step, facts["skipped"], facts["best"], dict(facts["metrics"]))
            return standing, facts["metrics_offset"]
        whole = checkpoint.steps(self.run.checkpoints)
        if whole:  # beginning anew would write over what may still be rescued
            raise UserError(
                f"none of the {len(whole)} checkpoints in {str(self.run.checkpoints)!r} can be used "
                f"({found.passed_over[0]})",
                "allowed is one that is as it was saved",
                "restore one, or remove them all to begin anew",
            )
        return RunProgress(), 0

    def _is_evaluation(self, entry: Mapping[str, Any]) -> bool:
        return entry.get("step") == self.standing.step and isinstance(entry.get("evaluation"), dict)

    def _last_written(self) -> dict[str, str]:
        """For the history: the last sign of life of whoever worked on the run before."""
        path = self.run.path / METRICS
        if not path.exists():
            return {}
        return {"last_written": datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")}

    def _behind_late_evaluation(self, offset: int) -> int:
        """The length of the log with the evaluation that was written after its checkpoint, if there is one."""
        path = self.run.path / METRICS
        line, newline, _ = (path.read_bytes()[offset:] if path.exists() else b"").partition(b"\n")
        late = parse_json_line(line)
        if not newline or late is None or not self._is_evaluation(late):
            return offset
        self.standing.judged(late["evaluation"].get("fid"))
        return offset + len(line + newline)

    def _opened(self, offset: int) -> MetricsLog:
        """The log as it was at the checkpoint. Weights are worth more than a log that was lost or changed."""
        path = self.run.path / METRICS
        try:
            return MetricsLog.resume(path, offset)
        except UserError as error:
            self.tell(f"{error.summary}; going on with the lines that there are")
            return MetricsLog(path)
