"""RUN/incidents/step-N.json: what a step with a loss or gradient that is not finite had seen.

A batch is a pure function of (seed, step). The file names both, and the images by their position in the data set, so
that the step can be looked at: `truedrift.training.train(run, step)`.

The steps of a run that are left, with what is looked at, logged, evaluated, drawn and saved between them.

A step is a pure function of (state, number): everything that a run draws comes from (seed, step), so that a state read
from a checkpoint and the number of the next step are all that is needed to go on as if nothing had happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from truedrift import distributed
from truedrift.axes import Tensor
from truedrift.generators.base import Generator
from truedrift.progress import Progress
from truedrift.storage import write_atomically
from truedrift.training.batch import Positives
from truedrift.training.config import RunConfig
from truedrift.training.journal import Notify, RunJournal, RunProgress
from truedrift.training.pictures import write_sample_picture
from truedrift.training.run_directory import INCIDENTS, SAMPLES, RunDirectory, write_errors_as_user_errors
from truedrift.training.setup import TrainingSetup
from truedrift.training.signals import StopSignal
from truedrift.training.step import StepResult
from truedrift.training.telemetry import step_metrics, timing


class NonFinite(RuntimeError):
    """A loss or gradient was NaN or infinite; the step changed no weight."""


class NonFiniteMonitor:
    """Which steps were not finite: noted on the device at every step, read from it now and then."""

    def __init__(self, every: int, device: torch.device) -> None:
        self.every = every
        self._flags = torch.zeros(self.every, dtype=torch.bool, device=device)

    def note(self, step: int, finite: Tensor) -> None:
        """Of step number `step`; nothing waits for the device."""
        self._flags[step % self.every] = ~finite

    def found(self, last: int) -> list[int]:
        """The steps since the last look, `last` included, that were not finite."""
        slots = self._flags.nonzero().flatten().tolist()
        self._flags.zero_()
        return sorted(last - (last - slot) % self.every for slot in slots)


def record_incident(path: Path, config: RunConfig, step: int, positives: Positives, outcome: StepResult | None) -> None:
    """Write what step number `step`, counted from 0, had seen."""
    batch = positives.batches.at(step)
    incident: dict[str, Any] = {
        "step": step,
        "seed": config.seed,
        "loss": None if outcome is None else repr(float(outcome.features.loss)),
        "gradient_norm": None if outcome is None else repr(float(outcome.gradient_norm)),
        "positives": batch.indices.tolist(),
        "mirrored": batch.mirrored.tolist(),
        "generated": config.generated * len(batch.indices),
    }
    if config.batch.unconditional > 0:
        incident["unconditional"] = positives.batches.unconditional(step, config.batch.unconditional).indices.tolist()
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, (json.dumps(incident) + "\n").encode())


Evaluate = Callable[[Generator, int], Mapping[str, Any]]
"""The averaged generator and the step → numbers by name; `fid`, if there is one, decides which checkpoint is best.

What it names `protocol` is no number: it tells how they were made, and is written beside them."""

ASKED_EVERY = 10
"""Steps between two looks of several GPUs at each other's signals."""


@dataclass(frozen=True)
class TrainingReport:
    """What a run says at a logged step, and at its end."""

    directory: Path
    step: int
    steps: int
    metrics: Mapping[str, Any]
    interrupted: str | None = None
    """The signal that asked to stop; the state is saved."""

    @property
    def complete(self) -> bool:
        """Whether it was the last step."""
        return self.step >= self.steps


class Loop:
    """A run in this process; one of the processes has its ledger."""

    def __init__(
        self,
        run: RunDirectory,
        assembly: TrainingSetup,
        ledger: RunJournal | None,
        *,
        evaluate: Evaluate | None,
        progress: Progress,
        tell: Notify,
    ) -> None:
        self.run, self.assembly, self.ledger = run, assembly, ledger
        self.evaluate, self.progress, self.tell = evaluate, progress, tell
        self.config, self.state, self.device = run.config, assembly.state, assembly.step.device
        self.standing = self._agreed(RunProgress() if ledger is None else ledger.standing)
        # Where a look at the device is free, every step is looked at.
        self.watch = NonFiniteMonitor(1 if self.device.type == "cpu" else self.config.cadence.log_every, self.device)
        self._since, self._images = time.monotonic(), 0

    def reports(self, interruption: StopSignal) -> Iterator[TrainingReport]:
        """Take the steps that are left."""
        at, steps = self.standing, self.config.cadence.steps
        while at.step < steps:
            outcome = self._taken()
            asked = self._asked(interruption)
            due = self._due() or asked is not None
            if due or at.step % self.watch.every == 0:
                self._look(outcome)
            logged = at.step % self.config.cadence.log_every == 0 or at.step == steps
            if logged:
                self._log(outcome)
            self._evaluate()
            self._picture()
            if due and self.ledger is not None:
                self.ledger.save()
            if asked is not None:
                self._note("interrupted", signal=asked)
                yield self._report(asked)
                return
            if logged and at.step < steps:
                yield self._report()
        self._evaluate_late()
        self._note("complete")
        yield self._report()

    def _agreed(self, standing: RunProgress) -> RunProgress:
        """The processes take over what the first one read: they need not see its disk."""
        standing.step, standing.skipped = distributed.broadcast_ints((standing.step, standing.skipped))
        self.state.agree(begun=standing.step > 0)
        return standing

    def _taken(self) -> StepResult:
        """The next step."""
        at = self.standing
        outcome = self.assembly.step(at.step)
        self.watch.note(at.step, outcome.finite)
        self._images += self.config.generated * len(self.assembly.samples.classes)
        at.step += 1
        self.progress("training", at.step, self.config.cadence.steps)
        return outcome

    def _report(self, asked: str | None = None) -> TrainingReport:
        return TrainingReport(
            self.run.path, self.standing.step, self.config.cadence.steps, self.standing.metrics, asked
        )

    def _note(self, event: str, **facts: Any) -> None:
        if self.ledger is not None:
            self.run.note(event, step=self.standing.step, **facts)

    def _due(self) -> bool:
        """Whether to save: now and then, at the end, and what was evaluated, since it may be the best."""
        step, cadence = self.standing.step, self.config.cadence
        return step % cadence.checkpoint_every == 0 or step == cadence.steps or self._evaluated()

    def _evaluated(self) -> bool:
        step, cadence = self.standing.step, self.config.cadence
        every = cadence.evaluate_every_epochs * cadence.steps_per_epoch
        return self.evaluate is not None and (step % every == 0 or step == cadence.steps)

    def _asked(self, interruption: StopSignal) -> str | None:
        """The signal that any of the processes got."""
        if distributed.size() == 1:
            return interruption.asked
        if self.device.type != "cpu" and self.standing.step % ASKED_EVERY:
            return None
        anyone = distributed.any_process(interruption.asked is not None)
        return (interruption.asked or "a signal to another process") if anyone else None

    def _look(self, outcome: StepResult) -> None:
        """Whether a step since the last look was not finite."""
        latest = self.standing.step - 1
        for step in self.watch.found(latest):
            self.standing.skipped += 1
            path = self.run.path / INCIDENTS / f"step-{step:08d}.json"
            if self.ledger is not None:
                last = outcome if step == latest else None
                with write_errors_as_user_errors(self.run.path):
                    record_incident(path, self.config, step, self.assembly.step.positives, last)
            sentence = f"step {step}: loss or gradient is not finite; the batch is told in {path}"
            if self.config.engine.nonfinite == "raise":
                raise NonFinite(f"{sentence}; it changed no weight; look at it, or set engine.nonfinite=skip")
            self.tell(f"{sentence}; it was skipped")

    def _log(self, outcome: StepResult) -> None:
        at = self.standing
        was_collapsed = at.metrics.get("collapsed", False)
        metrics = step_metrics(self.config, at.step, outcome, at.skipped)
        at.metrics = metrics | {"timing": timing(self._images, self._since, self.device)}
        self._since, self._images = time.monotonic(), 0
        if metrics["collapsed"] and not was_collapsed:
            self.tell(
                f"step {at.step}: samples of a class are {metrics['spread']:.2f} as far apart as data: a collapse?"
            )
        if self.ledger is not None:
            self.ledger.write(at.metrics)

    def _evaluate_late(self) -> None:
        """A run that was complete before it had this evaluation, or that lost it, is judged now."""
        if self._evaluated() and distributed.any_process(self.ledger is not None and not self.ledger.has_evaluation()):
            self.tell(f"step {self.standing.step} is the last and has no evaluation: it is evaluated now")
            self._evaluate()

    def _evaluate(self) -> None:
        if self.evaluate is None or not self._evaluated():
            return
        at = self.standing
        found = dict(self.evaluate(self.state.average.generator, at.step))
        protocol = {"protocol": found.pop("protocol")} if "protocol" in found else {}
        numbers = {name: None if value is None else float(value) for name, value in found.items()}
        if self.ledger is not None:
            self.ledger.write({"step": at.step, "evaluation": numbers} | protocol)
        at.judged(numbers.get("fid"))

    def _picture(self) -> None:
        step, every, last = self.standing.step, self.config.cadence.grid_every, self.config.cadence.steps
        if self.ledger is not None and every is not None and (step % every == 0 or step == last):
            path = self.run.path / SAMPLES / f"step-{step:08d}.png"
            with write_errors_as_user_errors(self.run.path):
                write_sample_picture(self.state.average.generator, self.assembly.samples, self.device, path)
