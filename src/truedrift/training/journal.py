"""What a run writes while it trains, and reads when it resumes: metrics.jsonl, checkpoints, copies for loggers.

RUN/metrics.jsonl holds one JSON object per line. A checkpoint stores length and sha256 of the file at its time. Lines
that a killed process wrote after its last checkpoint will be computed again, so a resumed run removes them, and the
file becomes identical to that of an uninterrupted run. The one exception is an evaluation of the checkpoint itself,
which a run has if it was evaluated after it was complete.

A file that does not match its hash is kept as metrics.damaged-1.jsonl. The run continues with its readable lines.

Only rank 0 has a journal; the other processes receive what they need from it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from truedrift import distributed
from truedrift.errors import UserError
from truedrift.storage import (
    iterate_json_lines,
    open_regular,
    open_to_read,
    parse_json_line,
    read_json_lines,
    sync_directory,
    write_all,
    write_atomically,
)
from truedrift.training import checkpoint
from truedrift.training.loggers import Loggers
from truedrift.training.run_directory import HISTORY, METRICS, RunDirectory, write_errors_as_user_errors
from truedrift.training.state import TrainingState
from truedrift.training.status import RunStatus, run_status

LATEST_BYTES = 1 << 16
Notify = Callable[[str], None]
"""Receives messages for the user."""


# ---- metrics.jsonl ----


class DamagedLog(UserError):
    """A log that is not as it was when a checkpoint was saved."""


class MetricsLog:
    """The file, opened for appending and created if it is missing.

    Args:
        path: The file metrics.jsonl, in an existing directory.
        length: Keep this many bytes; None: all whole lines. The rest is removed.

    Raises:
        UserError: If the file cannot be written.
    """

    def __init__(self, path: Path, length: int | None = None) -> None:
        self.path = path
        with write_errors_as_user_errors(path.parent):
            self._descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.ftruncate(self._descriptor, _whole_lines(path) if length is None else length)
            sync_directory(path.parent)
            self._digest = _hash_beginning(path, os.fstat(self._descriptor).st_size)

    @classmethod
    def resume(cls, path: Path, length: int, sha256: str | None = None) -> MetricsLog:
        """Open the file as it was when it had this length and this hash; None: older checkpoints have no hash.

        Raises:
            DamagedLog: If it cannot be read, or is not as it was.
            UserError: If it cannot be written.
        """
        try:
            digest = _hash_beginning(path, length)
            matches = digest is not None and sha256 in (None, digest.hexdigest())
        except FileNotFoundError:
            matches = length == 0
        except OSError as error:
            raise DamagedLog(
                f"{str(path)!r} cannot be read ({error.strerror})", "must be a file", "restore it"
            ) from None
        if not matches:
            raise DamagedLog(
                f"{str(path)!r} does not match the checkpoint, which was saved when the file had {length} bytes",
                "must contain every line that was written before the checkpoint",
                "restore the file, or start the run again in another directory",
            )
        return cls(path, length)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append one line. It survives a crash of the process, and after `sync()` also a crash of the machine."""
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self._require_place()
        with write_errors_as_user_errors(self.path.parent):
            write_all(self._descriptor, line)
        self._digest.update(line)

    def sync(self) -> tuple[int, str]:
        """Wait until the file is on disk, and return its length and sha256."""
        self._require_place()
        with write_errors_as_user_errors(self.path.parent):
            os.fsync(self._descriptor)
        return os.fstat(self._descriptor).st_size, self._digest.hexdigest()

    def _require_place(self) -> None:
        """Require that the path is still the open file: a run whose directory was moved would go on in two places."""
        with write_errors_as_user_errors(self.path.parent):
            opened = os.fstat(self._descriptor)
            is_same = os.path.lexists(self.path) and os.path.samestat(os.lstat(self.path), opened)
        if not is_same:
            raise UserError(
                f"{str(self.path)!r} was moved, removed or replaced during the run",
                "a run directory must stay in its place until the run ends",
                "restore it, and run the same command again",
            )

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


def _whole_lines(path: Path) -> int:
    """Return the length of a file up to its last newline, which is searched from the end."""
    with open_to_read(path) as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - LATEST_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def _hash_beginning(path: Path, length: int) -> Any:
    """Return the sha256 object of the first bytes of a file, which must be whole lines; None if they are not."""
    digest, left, last = hashlib.sha256(), length, b"\n"
    with open_to_read(path) as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            digest.update(chunk)
            left, last = left - len(chunk), chunk[-1:]
    return digest if left == 0 and last == b"\n" else None


def keep_damaged(path: Path, step: int) -> str:
    """Keep a damaged log under a new name, which is returned, and leave its readable lines up to that step in the log.

    The lines keep their bytes. There is a log at every moment: the damaged one has two names until it is replaced.
    """
    number = next(n for n in itertools.count(1) if not os.path.lexists(_damaged_name(path, n)))
    damaged = _damaged_name(path, number)
    if path.is_file() and not path.is_symlink():
        _add_name(path, damaged)
    else:  # a link or a device
        os.replace(path, damaged)
    write_atomically(path, _readable_lines(damaged, step))
    return damaged.name


def _damaged_name(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.damaged-{number}.jsonl")


def _add_name(path: Path, other: Path) -> None:
    """Give a file a second name, or copy it where the file system has no hard links."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)


def _readable_lines(path: Path, step: int) -> Iterator[bytes]:
    """Yield the lines of a log that can be read, up to that step."""
    try:
        with open_to_read(path) as file:
            for line in file:
                entry = parse_json_line(line) if line.endswith(b"\n") else None
                if entry is not None and _is_step(entry.get("step"), step):
                    yield line
    except OSError:
        return


def _is_step(value: Any, largest: int) -> bool:
    return isinstance(value, int) and 0 <= value <= largest


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


def _late_evaluation(path: Path, length: int, step: int) -> dict[str, Any] | None:
    """Return an evaluation of the checkpoint of that step, which was written after it was saved."""
    try:
        with open_to_read(path) as file:
            file.seek(length)
            line = file.readline(LATEST_BYTES)
    except OSError:
        return None
    entry = parse_json_line(line) if line.endswith(b"\n") else None
    return entry if entry is not None and _is_evaluation(entry, step) else None


def _has_evaluation(path: Path, step: int) -> bool:
    """Return whether the last lines of the log hold an evaluation of that step."""
    return any(_is_evaluation(entry, step) for entry in iterate_json_lines(path, last_bytes=LATEST_BYTES))


def _is_evaluation(entry: Mapping[str, Any], step: int) -> bool:
    return entry.get("step") == step and isinstance(entry.get("evaluation"), dict)


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

    @classmethod
    def at(cls, saved: checkpoint.Checkpoint) -> RunProgress:
        """Return the progress at a checkpoint."""
        facts = saved.facts
        energy = facts.get("energy", [])  # older checkpoints have none
        return cls(saved.step, facts["skipped"], facts["best"], dict(facts["metrics"]), energy)

    def record_fid(self, fid: Any) -> None:
        """Record the FID of the current step, which becomes the best step if its FID is the smallest so far."""
        if isinstance(fid, float) and math.isfinite(fid) and (self.best is None or fid < self.best["fid"]):
            self.best = {"step": self.step, "fid": fid}


def _logged(facts: Mapping[str, Any]) -> tuple[int, str | None]:
    """Return length and sha256 of the metrics at a checkpoint; older checkpoints have no hash."""
    return facts["metrics_offset"], facts.get("metrics_sha256")


def is_log_intact(run: RunDirectory) -> bool:
    """Return whether metrics.jsonl begins with what it held when the newest checkpoint was saved.

    Args:
        run: The run. Nothing is written, and no tensor is read.

    Returns:
        True also if there is no checkpoint to compare with.
    """
    facts = checkpoint.latest_facts(run.checkpoints, run=run.id)
    if facts is None:
        return True
    length, sha256 = _logged(facts)
    try:
        digest = _hash_beginning(run.path / METRICS, length)
    except FileNotFoundError:
        return length == 0
    return digest is not None and sha256 in (None, digest.hexdigest())


def describe_start(run: RunDirectory, step: int) -> str:
    """Return the message on a run that starts at that step."""
    steps = run.config.cadence.steps
    if step >= steps:
        return f"all {steps} steps are already done in {run.path}"
    if step:
        return f"resuming at step {step} of {steps} steps in {run.path}"
    fixed = run.config.optimizer.schedule == "cosine"  # a longer run would be another run
    schedule = " with a cosine schedule, which fixes the length of the run" if fixed else ""
    return f"{run.config.recipe}: {steps} steps{schedule} in {run.path}"


def read_complete(run: RunDirectory, *, evaluated: bool) -> RunProgress | None:
    """Return the progress of a run that is complete and whose files are as it left them. Nothing is written.

    Args:
        run: The run.
        evaluated: Whether its last step must have an evaluation.

    Returns:
        The progress at the last step; None if something is missing or damaged, which `RunJournal` can deal with.
    """
    steps, path = run.config.cadence.steps, run.path / METRICS
    if run_status(read_json_lines(run.path / HISTORY), steps) is not RunStatus.COMPLETE:
        return None
    # The newest checkpoint is valid, and that of the last step.
    latest = checkpoint.latest_checkpoint(run.checkpoints, run=run.id)
    saved = latest.checkpoint
    if saved is None or latest.skipped or saved.step < steps:
        return None
    # The log ends where the checkpoint was saved, or an evaluation follows.
    length, sha256 = _logged(saved.facts)
    try:
        digest, size = _hash_beginning(path, length), path.stat().st_size
    except OSError:
        return None
    is_intact = digest is not None and digest.hexdigest() == sha256
    if not is_intact or (size > length and _late_evaluation(path, length, saved.step) is None):
        return None
    return RunProgress.at(saved) if not evaluated or _has_evaluation(path, saved.step) else None


class RunJournal:
    """The files of a run, opened at its newest valid checkpoint, which is loaded into `state`.

    Args:
        run: The run.
        state: Receives the tensors of the checkpoint.
        notify: Called with messages for the user.
        log: Names of loggers, as `resolve_loggers` returns them.
    """

    def __init__(self, run: RunDirectory, state: TrainingState, notify: Notify, log: Sequence[str] = ()) -> None:
        self.run, self.state, self.notify = run, state, notify
        # Load the newest checkpoint.
        self.progress, logged = self._load_checkpoint()
        self._prune()  # an earlier process may have been killed before it did
        for unfinished in run.path.glob(".*.writing"):  # of killed processes; this one holds the lock
            unfinished.unlink(missing_ok=True)
        step = self.progress.step
        # Describe the start before the metrics are opened, which changes their time of modification.
        start = {"step": step, "processes": distributed.size(), **self._last_written()}
        # Open the files where that checkpoint left them.
        self._log = self._open_log(*logged)
        run.append_history("started" if step == 0 else "resumed", **start)
        self._loggers = Loggers(log, run.path, run.config.tree(), step, notify)
        notify(describe_start(run, step))

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Append a line of metrics; its numbers must be finite or None."""
        self._log.append(metrics)
        self._loggers.add(metrics)

    def add_picture(self, path: Path) -> None:
        """Give a picture of samples at the current step to the loggers."""
        self._loggers.add_picture(self.progress.step, path)

    def has_evaluation(self) -> bool:
        """Return whether the log holds an evaluation of the current step."""
        return _has_evaluation(self.run.path / METRICS, self.progress.step)

    def save(self) -> None:
        """Save a checkpoint of the current state, and prune older ones."""
        progress = self.progress
        length, sha256 = self._log.sync()
        facts = {
            "metrics_offset": length,
            "metrics_sha256": sha256,
            "skipped": progress.skipped,
            "best": progress.best,
            "metrics": {name: value for name, value in progress.metrics.items() if name != "timing"},
            "energy": progress.energy,
        }
        saved = checkpoint.Checkpoint(progress.step, self.state.tensors(), facts)
        checkpoint.save(self.run.checkpoints, saved, run=self.run.id)
        self._prune()

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._loggers.close()

    def _prune(self) -> None:
        """Remove the checkpoints that need not be kept, and what killed processes left."""
        cadence, best = self.run.config.cadence, self.progress.best
        checkpoint.prune(
            self.run.checkpoints,
            keep_last=cadence.keep_last,
            keep_every=cadence.keep_every,
            best=None if best is None else best["step"],
        )

    def _load_checkpoint(self) -> tuple[RunProgress, tuple[int, str | None]]:
        """Load the newest valid checkpoint; return its progress, and length and hash of the metrics at its time."""
        latest = checkpoint.latest_checkpoint(
            self.run.checkpoints, run=self.run.id, use=lambda found: self.state.load(found.tensors)
        )
        for message in latest.skipped:
            self.notify(message)
        if latest.checkpoint is not None:
            return RunProgress.at(latest.checkpoint), _logged(latest.checkpoint.facts)
        damaged = checkpoint.steps(self.run.checkpoints)
        if damaged:  # a new start would overwrite what may still be recovered
            raise UserError(
                f"none of the {len(damaged)} checkpoints in {str(self.run.checkpoints)!r} can be used "
                f"({latest.skipped[0]})",
                "at least one must be as it was saved",
                "restore one, or remove them all to start again",
            )
        return RunProgress(), (0, None)

    def _open_log(self, length: int, sha256: str | None) -> MetricsLog:
        """Open the log as it was at the checkpoint. A log that was lost or changed does not cost the weights."""
        path = self.run.path / METRICS
        late = _late_evaluation(path, length, self.progress.step)
        try:
            log = MetricsLog.resume(path, length, sha256)
        except DamagedLog as error:
            return self._repair_log(path, error)
        if late is not None:
            self.progress.record_fid(late["evaluation"].get("fid"))
            log.append(late)
        return log

    def _repair_log(self, path: Path, error: DamagedLog) -> MetricsLog:
        """Open the log with the lines that can be read, and record its new hash in the checkpoint."""
        kept = ""
        with write_errors_as_user_errors(self.run.path):
            if os.path.lexists(path):
                kept = f"; the damaged file was kept as {keep_damaged(path, self.progress.step)}"
        self.notify(f"{error.summary}; continuing with the lines that can be read{kept}")
        log = MetricsLog(path)
        if self.progress.step:
            length, sha256 = log.sync()
            saved = self.run.checkpoints / checkpoint.directory_name(self.progress.step)
            with write_errors_as_user_errors(self.run.path):
                checkpoint.replace_facts(saved, {"metrics_offset": length, "metrics_sha256": sha256}, run=self.run.id)
        return log

    def _last_written(self) -> dict[str, str]:
        """Return when the metrics were last written: the end of an earlier process that was killed."""
        path = self.run.path / METRICS
        if not path.is_file():
            return {}
        return {"last_written": datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")}
