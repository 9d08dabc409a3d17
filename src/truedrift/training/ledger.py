"""What a run leaves on the disk while it goes on, and finds there: metrics.jsonl, TensorBoard's files, checkpoints.

A checkpoint holds the length of metrics.jsonl at its time; what was written after it is cut off and computed again.
Only an evaluation of the checkpoint itself stays there: a run that was complete before it was judged has one. One
process of a run keeps the ledger; the others get from it what they need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from truedrift import collectives
from truedrift.records.json_lines import object_of, objects
from truedrift.training import checkpoint
from truedrift.training.metrics_log import MetricsLog
from truedrift.training.retention import prune
from truedrift.training.run import METRICS, RunDirectory
from truedrift.training.state import TrainingState
from truedrift.training.telemetry import TensorBoard
from truedrift.validation import Mistake, mistake

LATEST_BYTES = 1 << 16
Tell = Callable[[str], None]
"""Gets sentences that a person should see."""


@dataclass
class Standing:
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


class Ledger:
    """Opened where the newest checkpoint left it, whose state is loaded."""

    def __init__(self, run: RunDirectory, state: TrainingState, tell: Tell) -> None:
        self.run, self.state, self.tell = run, state, tell
        self.standing, offset = self._read()
        step = self.standing.step
        written = self._last_written()
        self._log = self._opened(self._behind_late_evaluation(offset))
        self._board = TensorBoard(run.path / "tensorboard", step, tell)
        run.note("started" if step == 0 else "resumed", step=step, processes=collectives.size(), **written)
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
        latest = objects(self.run.path / METRICS, last_bytes=LATEST_BYTES)
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

    def _read(self) -> tuple[Standing, int]:
        """Where the newest whole checkpoint stands, and how long the metrics were then."""
        found = checkpoint.newest(self.run.checkpoints, run=self.run.id)
        for sentence in found.passed_over:
            self.tell(sentence)
        if found.checkpoint is not None:
            facts = found.checkpoint.facts
            self.state.load(found.checkpoint.tensors)
            standing = Standing(found.checkpoint.step, facts["skipped"], facts["best"], dict(facts["metrics"]))
            return standing, facts["metrics_offset"]
        whole = checkpoint.steps(self.run.checkpoints)
        if whole:  # beginning anew would write over what may still be rescued
            raise mistake(
                f"none of the {len(whole)} checkpoints in {str(self.run.checkpoints)!r} can be used "
                f"({found.passed_over[0]})",
                "allowed is one that is as it was saved",
                "restore one, or remove them all to begin anew",
            )
        return Standing(), 0

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
        late = object_of(line)
        if not newline or late is None or not self._is_evaluation(late):
            return offset
        self.standing.judged(late["evaluation"].get("fid"))
        return offset + len(line + newline)

    def _opened(self, offset: int) -> MetricsLog:
        """The log as it was at the checkpoint. Weights are worth more than a log that was lost or changed."""
        path = self.run.path / METRICS
        try:
            return MetricsLog.resume(path, offset)
        except Mistake as error:
            self.tell(f"{str(error).split(';')[0]}; going on with the lines that there are")
            return MetricsLog(path)
