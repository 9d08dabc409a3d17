"""What a run leaves on the disk while it goes on, and finds there: metrics.jsonl, TensorBoard's files, checkpoints.

A checkpoint holds the length of metrics.jsonl at its time; what was written after it is cut off and computed again.
One process of a run keeps the ledger; the others get from it what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from truedrift import collectives
from truedrift.training import checkpoint
from truedrift.training.metrics_log import MetricsLog
from truedrift.training.retention import prune
from truedrift.training.run import METRICS, RunDirectory
from truedrift.training.state import TrainingState
from truedrift.training.telemetry import TensorBoard
from truedrift.validation import Mistake, mistake

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


class Ledger:
    """Opened where the newest checkpoint left it, whose state is loaded."""

    def __init__(self, run: RunDirectory, state: TrainingState, tell: Tell) -> None:
        self.run, self.state, self.tell = run, state, tell
        self.standing, offset = self._read()
        step, length = self.standing.step, f"{run.config.cadence.steps} steps in {run.path}"
        self._log = self._opened(offset)
        self._board = TensorBoard(run.path / "tensorboard", step, tell)
        run.note("started" if step == 0 else "resumed", step=step, processes=collectives.size())
        tell(f"going on from step {step} of {length}" if step else f"{run.config.recipe}: {length}")

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Add a line of metrics."""
        self._log.append(metrics)
        self._board.add(metrics)

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

    def _opened(self, offset: int) -> MetricsLog:
        """The log as it was at the checkpoint. Weights are worth more than a log that was lost or changed."""
        path = self.run.path / METRICS
        try:
            return MetricsLog.resume(path, offset)
        except Mistake as error:
            self.tell(f"{str(error).split(';')[0]}; going on with the lines that there are")
            return MetricsLog(path)
