"""The training loop: take the remaining steps; check, log, evaluate, draw samples and save in between.

A step is a pure function of (state, step number), because everything that a run draws comes from (seed, step). A state
from a checkpoint and the number of the next step are all that is needed to resume a run as if it had never stopped.

A step whose loss or gradient is not finite leaves RUN/incidents/step-N.json: the step number, the seed, and the
positions of the images in the data set. `truedrift.training.replay(run, step)` takes that step again.
"""

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
from truedrift.training.pictures import write_real_picture, write_sample_picture
from truedrift.training.run_directory import INCIDENTS, REAL, SAMPLES, RunDirectory, write_errors_as_user_errors
from truedrift.training.setup import TrainingSetup
from truedrift.training.signals import StopSignal
from truedrift.training.step import StepResult, step_metrics
from truedrift.training.telemetry import EnergyAverage, finite_or_none, timing


class NonFinite(RuntimeError):
    """A loss or gradient was NaN or infinite; the step changed no weight."""


class NonFiniteMonitor:
    """Record on the device which steps were not finite, and read the record from time to time.

    Args:
        every: Largest number of steps between two reads.
        device: The device of the run.
    """

    def __init__(self, every: int, device: torch.device) -> None:
        self.every = every
        self._flags = torch.zeros(self.every, dtype=torch.bool, device=device)

    def record(self, step: int, finite: Tensor) -> None:
        """Record whether step number `step` was finite, without waiting for the device."""
        self._flags[step % self.every] = ~finite

    def nonfinite_steps(self, last: int) -> list[int]:
        """Return the steps since the last call, up to and including `last`, that were not finite."""
        slots = self._flags.nonzero().flatten().tolist()
        self._flags.zero_()
        return sorted(last - (last - slot) % self.every for slot in slots)


def record_incident(path: Path, config: RunConfig, step: int, positives: Positives, outcome: StepResult | None) -> None:
    """Write the inputs of step number `step`, counted from 0, and its loss and gradient norm if they are known."""
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
    if config.batch.labels is not None:
        incident["labels"] = positives.batches.classes_at(step).classes.tolist()
    if config.batch.unconditional > 0:
        incident["unconditional"] = positives.batches.unconditional(step, config.batch.unconditional).indices.tolist()
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, (json.dumps(incident) + "\n").encode())


Evaluate = Callable[[Generator, int], Mapping[str, Any]]
"""A function of an averaged generator and the step. It returns numbers by name.

The number `fid`, if present, decides which checkpoint is the best. The entry `protocol`, if present, is not a number;
it describes how the numbers were computed and is written with them. The numbers of further averages
(`optimizer.more_ema`) are written under `more_ema`, by decay; they have the same protocol."""

SIGNAL_CHECK_STEPS = 10
"""Steps between two checks of the signals of all processes on GPUs."""


@dataclass(frozen=True)
class TrainingReport:
    """The progress of a run at a logged step and at its end."""

    directory: Path
    """The run directory."""
    step: int
    """Number of steps taken."""
    steps: int
    """Number of steps of the whole run."""
    metrics: Mapping[str, Any]
    """Metrics of the last logged step, as in metrics.jsonl."""
    interrupted: str | None = None
    """The signal that stopped the run, if any; the state is saved."""

    @property
    def complete(self) -> bool:
        """Whether this was the last step."""
        return self.step >= self.steps


class Loop:
    """A run in this process. `journal` is None on all ranks but 0."""

    def __init__(
        self,
        run: RunDirectory,
        setup: TrainingSetup,
        journal: RunJournal | None,
        *,
        evaluate: Evaluate | None,
        progress: Progress,
        notify: Notify,
    ) -> None:
        self.run, self.setup, self.journal = run, setup, journal
        self.evaluate, self.progress, self.notify = evaluate, progress, notify
        self.config, self.state, self.device = run.config, setup.state, setup.step.device
        self.energy = EnergyAverage(setup.step.objective.scales, self.device)
        self.run_progress = self._synchronize(RunProgress() if journal is None else journal.progress)
        # On a CPU a check costs nothing, so that every step is checked.
        check_every = 1 if self.device.type == "cpu" else self.config.cadence.log_every
        self.monitor = NonFiniteMonitor(check_every, self.device)
        self._since, self._images = time.monotonic(), 0
        self._classes = len(setup.samples.classes)

    def reports(self, stop: StopSignal) -> Iterator[TrainingReport]:
        """Take the remaining steps; yield a report at every logged step and at the end."""
        current, steps = self.run_progress, self.config.cadence.steps
        while current.step < steps:
            # Take a step.
            outcome = self._take_step()
            stop_reason = self._stop_reason(stop)
            save = self._checkpoint_due() or stop_reason is not None
            # Check that loss and gradient were finite.
            if save or current.step % self.monitor.every == 0:
                self._check_finite(outcome)
            # Log, evaluate, draw samples.
            logged = current.step % self.config.cadence.log_every == 0 or current.step == steps
            if logged:
                self._log(outcome)
            self._evaluate()
            self._write_picture()
            # Save.
            if save and self.journal is not None:
                current.energy = self.energy.sums()
                self.journal.save()
            # Report.
            if stop_reason is not None:
                self._append_history("interrupted", signal=stop_reason)
                yield self._report(stop_reason)
                return
            if logged and current.step < steps:
                yield self._report()
        self._evaluate_late()
        self._append_history("complete")
        yield self._report()

    def _synchronize(self, current: RunProgress) -> RunProgress:
        """Give all processes the state of rank 0, the only one that reads the disk."""
        current.step, current.skipped = distributed.broadcast_ints((current.step, current.skipped))
        self.state.broadcast(started=current.step > 0)
        self.energy.load(current.energy)
        self.energy.broadcast()
        return current

    def _take_step(self) -> StepResult:
        current = self.run_progress
        outcome = self.setup.step(current.step)
        self.monitor.record(current.step, outcome.finite)
        self.energy.add(outcome.features.energy())
        self._images += self.config.generated * self.config.classes_per_step(self._classes)
        current.step += 1
        self.progress("training", current.step, self.config.cadence.steps)
        return outcome

    def _report(self, stop_reason: str | None = None) -> TrainingReport:
        return TrainingReport(
            self.run.path, self.run_progress.step, self.config.cadence.steps, self.run_progress.metrics, stop_reason
        )

    def _append_history(self, event: str, **facts: Any) -> None:
        if self.journal is not None:
            self.run.append_history(event, step=self.run_progress.step, **facts)

    def _checkpoint_due(self) -> bool:
        """Return whether to save: at the cadence, at the end, and after an evaluation, which may be the best."""
        step, cadence = self.run_progress.step, self.config.cadence
        return step % cadence.checkpoint_every == 0 or step == cadence.steps or self._evaluation_due()

    def _evaluation_due(self) -> bool:
        step, cadence = self.run_progress.step, self.config.cadence
        every = cadence.evaluate_every_epochs * cadence.steps_per_epoch
        return self.evaluate is not None and (step % every == 0 or step == cadence.steps)

    def _stop_reason(self, stop: StopSignal) -> str | None:
        """Return the signal that any of the processes received."""
        if distributed.size() == 1:
            return stop.received
        if self.device.type != "cpu" and self.run_progress.step % SIGNAL_CHECK_STEPS:
            return None
        anyone = distributed.any_process(stop.received is not None)
        return (stop.received or "a signal to another process") if anyone else None

    def _check_finite(self, outcome: StepResult) -> None:
        """Record an incident for every step since the last check that was not finite."""
        latest = self.run_progress.step - 1
        for step in self.monitor.nonfinite_steps(latest):
            self.run_progress.skipped += 1
            path = self.run.path / INCIDENTS / f"step-{step:08d}.json"
            if self.journal is not None:
                with write_errors_as_user_errors(self.run.path):
                    positives = self.setup.step.positives
                    record_incident(path, self.config, step, positives, outcome if step == latest else None)
            message = f"step {step}: loss or gradient is not finite; the batch is described in {path}"
            if self.config.engine.nonfinite == "raise":
                raise NonFinite(f"{message}; no weight was changed; inspect the batch, or set engine.nonfinite=skip")
            self.notify(f"{message}; the step was skipped")

    def _log(self, outcome: StepResult) -> None:
        current = self.run_progress
        was_collapsed = current.metrics.get("collapsed", False)
        energy = self.energy.metrics()
        metrics = step_metrics(self.config, current.step, outcome, energy, current.skipped, self._classes)
        self.energy.reset()
        current.metrics = metrics | {"timing": timing(self._images, self._since, self.device)}
        self._since, self._images = time.monotonic(), 0
        if metrics["collapsed"] and not was_collapsed:
            self.notify(
                f"step {current.step}: the generator may have collapsed: "
                f"the distance between generated features is {metrics['spread']:.2f} times their distance to the data"
            )
        if self.journal is not None:
            self.journal.write(current.metrics)

    def _evaluate_late(self) -> None:
        """Evaluate a complete run whose last step has no evaluation in the log."""
        missing = self.journal is not None and not self.journal.has_evaluation()
        if self._evaluation_due() and distributed.any_process(missing):
            self.notify(f"step {self.run_progress.step} is the last step and has no evaluation; evaluating it now")
            self._evaluate()

    def _evaluate(self) -> None:
        if self.evaluate is None or not self._evaluation_due():
            return
        current, state = self.run_progress, self.state
        numbers, protocol = _call_evaluate(self.evaluate, state.average.generator, current.step)
        entry: dict[str, Any] = {"step": current.step, "evaluation": numbers}
        if state.more_averages:
            entry["more_ema"] = {
                f"{decay!r}": _call_evaluate(self.evaluate, average.generator, current.step)[0]
                for decay, average in state.more_averages.items()
            }
        if self.journal is not None:
            self.journal.write(finite_or_none(entry | protocol))
        current.record_fid(numbers.get("fid"))

    def _write_picture(self) -> None:
        step, every, last = self.run_progress.step, self.config.cadence.grid_every, self.config.cadence.steps
        if self.journal is not None and every is not None and (step % every == 0 or step == last):
            path, real = self.run.path / SAMPLES / f"step-{step:08d}.png", self.run.path / SAMPLES / REAL
            with write_errors_as_user_errors(self.run.path):
                if not real.exists():  # with the first picture of samples
                    write_real_picture(self.setup.samples, real)
                write_sample_picture(
                    self.state.average.generator,
                    self.setup.samples,
                    self.device,
                    path,
                    strength=self.config.sample_strength,
                )
            self.journal.add_picture(path)


def _call_evaluate(
    evaluate: Evaluate, generator: Generator, step: int
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Return the numbers of a generator, and {"protocol": …} if the function gave one."""
    result = dict(evaluate(generator, step))
    protocol = {"protocol": result.pop("protocol")} if "protocol" in result else {}
    return {name: None if value is None else float(value) for name, value in result.items()}, protocol
