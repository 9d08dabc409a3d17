"""`train(config)`: a run from its first step to its last, or from where it was to there; yields what is logged.

A step is a pure function of (state, number): everything that a run draws comes from (seed, step), so that a state read
from a checkpoint and the number of the next step are all that is needed to go on as if nothing had happened. A
checkpoint holds the length of metrics.jsonl at its time; what was written after it is cut off and computed again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from truedrift import collectives
from truedrift.data.samples import Samples
from truedrift.generators.base import Generator
from truedrift.progress import Progress, silent
from truedrift.training import checkpoint, incidents
from truedrift.training.assembly import Assembly, assemble, find_device, samples_of
from truedrift.training.config import RunConfig, require_consistent
from truedrift.training.incidents import NonFinite, Watch
from truedrift.training.interruption import Interruption
from truedrift.training.lock import RunLock
from truedrift.training.memory import told_if_too_small
from truedrift.training.metrics_log import MetricsLog
from truedrift.training.parts import Parts
from truedrift.training.pictures import picture
from truedrift.training.retention import prune
from truedrift.training.run import INCIDENTS, METRICS, SAMPLES, RunDirectory, made, told_if_not_written
from truedrift.training.step import Outcome
from truedrift.training.telemetry import TensorBoard, measured, timing
from truedrift.validation import Mistake, mistake

Evaluate = Callable[[Generator, int], Mapping[str, float]]
"""The averaged generator and the step → numbers by name; `fid`, if there is one, decides which checkpoint is best."""

Tell = Callable[[str], None]
ASKED_EVERY = 10
"""Steps between two looks of several GPUs at each other's signals."""


@dataclass(frozen=True)
class Report:
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


def run_directory(config: RunConfig, parts: Parts, out: Path | None) -> RunDirectory:
    """Where the run lives: `out`, or runs/<recipe>-<hash of the configuration>."""
    run = RunDirectory(out or Path(), config, parts.names())
    return run if out is not None else RunDirectory(Path("runs") / f"{config.recipe}-{run.id}", config, parts.names())


def train(
    config: RunConfig,
    *,
    parts: Parts | None = None,
    out: Path | None = None,
    device: str = "auto",
    evaluate: Evaluate | None = None,
    progress: Progress = silent,
    tell: Tell | None = None,
) -> Iterator[Report]:
    """Train, or go on training, the run of this configuration; checks come before the first report is asked for.

    `parts` are Python objects in place of what the configuration names. `evaluate` is called every
    `cadence.evaluate_every_epochs` epochs, and the state it saw is saved. `tell` gets sentences that a person should
    see.
    """
    config, parts = require_consistent(config), parts or Parts()
    where = find_device(device)
    samples = samples_of(config, parts)
    run = run_directory(config, parts, None if out is None else Path(out))
    return _run(run, parts, samples, where, evaluate, progress, tell or (lambda sentence: None))


def _run(
    run: RunDirectory,
    parts: Parts,
    samples: Samples,
    device: torch.device,
    evaluate: Evaluate | None,
    progress: Progress,
    tell: Tell,
) -> Iterator[Report]:
    with ExitStack() as stack:
        stack.enter_context(told_if_too_small())
        stack.enter_context(collectives.joined(device))
        interruption = stack.enter_context(Interruption())
        run.require_own(samples)  # before work that takes minutes; again when the directory is locked
        try:
            assembly = assemble(run.config, parts, samples, device, _breaking_off(progress, interruption))
        except BrokenOff as signal:
            yield Report(run.path, 0, run.config.cadence.steps, {}, str(signal))
            return
        writes = collectives.rank() == 0
        if writes:
            stack.enter_context(RunLock(made(run.path)))
            run.begin(samples)
        collectives.wait()
        loop = Loop(run, assembly, evaluate, progress, tell if writes else lambda sentence: None, writes)
        stack.callback(loop.close)
        yield from loop.reports(interruption)


class BrokenOff(Exception):
    """A signal came before the first step, during work that can be broken off."""


def _breaking_off(progress: Progress, interruption: Interruption) -> Progress:
    """The same, but it raises once a signal has asked to stop."""

    def told(what: str, done: float, total: float) -> None:
        progress(what, done, total)
        if interruption.asked is not None:
            raise BrokenOff(interruption.asked)

    return told


class Loop:
    """The state of a run in this process."""

    def __init__(
        self,
        run: RunDirectory,
        assembly: Assembly,
        evaluate: Evaluate | None,
        progress: Progress,
        tell: Tell,
        writes: bool,
    ) -> None:
        self.run, self.assembly, self.evaluate, self.progress, self.tell = run, assembly, evaluate, progress, tell
        self.writes, self.config, self.state = writes, run.config, assembly.state
        self.device = assembly.step.device
        self.step, self.skipped = 0, 0
        self.best: dict[str, Any] | None = None
        self.metrics: dict[str, Any] = {}
        # Where a look at the device is free, every step is looked at.
        self.watch = Watch(1 if self.device.type == "cpu" else self.config.cadence.log_every, self.device)
        self._resume()
        self._since, self._images = time.monotonic(), 0

    def _resume(self) -> None:
        """The first process reads what there is, the others take it over: they need not see its disk."""
        self.log: MetricsLog | None = None
        self.board: TensorBoard | None = None
        if self.writes:
            self._read()
        self.step, self.skipped = collectives.numbers_of_first((self.step, self.skipped))
        self.state.agree(begun=self.step > 0)

    def _read(self) -> None:
        found = checkpoint.newest(self.run.checkpoints, run=self.run.id)
        for sentence in found.passed_over:
            self.tell(sentence)
        whole = checkpoint.steps(self.run.checkpoints)
        if found.checkpoint is None and whole:  # beginning anew would write over what may still be rescued
            raise mistake(
                f"none of the {len(whole)} checkpoints in {str(self.run.checkpoints)!r} can be used "
                f"({found.passed_over[0]})",
                "allowed is one that is as it was saved",
                "restore one, or remove them all to begin anew",
            )
        offset = 0
        if found.checkpoint is not None:
            facts = found.checkpoint.facts
            self.state.load(found.checkpoint.tensors)
            self.step, self.skipped, self.best = found.checkpoint.step, facts["skipped"], facts["best"]
            self.metrics, offset = dict(facts["metrics"]), facts["metrics_offset"]
        self.log = self._metrics(offset)
        self.board = TensorBoard(self.run.path / "tensorboard", self.step, self.tell)
        self.run.note("started" if self.step == 0 else "resumed", step=self.step, processes=collectives.size())
        length = f"{self.config.cadence.steps} steps in {self.run.path}"
        self.tell(f"going on from step {self.step} of {length}" if self.step else f"{self.config.recipe}: {length}")

    def _metrics(self, offset: int) -> MetricsLog:
        """The log as it was at the checkpoint. Weights are worth more than a log that was lost or changed."""
        path = self.run.path / METRICS
        try:
            return MetricsLog.resume(path, offset)
        except Mistake as error:
            self.tell(f"{str(error).split(';')[0]}; going on with the lines that there are")
            return MetricsLog(path)

    def reports(self, interruption: Interruption) -> Iterator[Report]:
        """Take the steps that are left."""
        steps = self.config.cadence.steps
        while self.step < steps:
            outcome = self.assembly.step(self.step)
            self.watch.note(self.step, outcome.finite)
            self._images += self.config.generated * len(self.assembly.samples.classes)
            self.step += 1
            self.progress("training", self.step, steps)
            asked = self._asked(interruption)
            due = self._due()
            if due or self.step % self.watch.every == 0 or asked:
                self._look(outcome)
            if self.step % self.config.cadence.log_every == 0 or self.step == steps:
                self._log(outcome)
            self._evaluate()
            self._picture()
            if due or asked:
                self._save()
            if asked:
                self.run.note("interrupted", step=self.step, signal=asked) if self.writes else None
                yield Report(self.run.path, self.step, steps, self.metrics, asked)
                return
            if self.step % self.config.cadence.log_every == 0 and self.step < steps:
                yield Report(self.run.path, self.step, steps, self.metrics)
        if self.writes:
            self.run.note("complete", step=self.step)
        yield Report(self.run.path, self.step, steps, self.metrics)

    def close(self) -> None:
        """Close what is open."""
        for sink in (self.log, self.board):
            if sink is not None:
                sink.close()

    def _due(self) -> bool:
        """Whether to save: now and then, at the end, and what was evaluated, since it may be the best."""
        cadence = self.config.cadence
        return self.step % cadence.checkpoint_every == 0 or self.step == cadence.steps or self._evaluated()

    def _evaluated(self) -> bool:
        every = self.config.cadence.evaluate_every_epochs * self.config.cadence.steps_per_epoch
        return self.evaluate is not None and (self.step % every == 0 or self.step == self.config.cadence.steps)

    def _asked(self, interruption: Interruption) -> str | None:
        """The signal that any of the processes got."""
        if collectives.size() == 1:
            return interruption.asked
        if self.device.type != "cpu" and self.step % ASKED_EVERY:
            return None
        anyone = collectives.any_of(interruption.asked is not None)
        return (interruption.asked or "a signal to another process") if anyone else None

    def _look(self, outcome: Outcome) -> None:
        """Whether a step since the last look was not finite."""
        for step in self.watch.found(self.step - 1):
            self.skipped += 1
            path = self.run.path / INCIDENTS / f"step-{step:08d}.json"
            if self.writes:
                last = outcome if step == self.step - 1 else None
                with told_if_not_written(self.run.path):
                    incidents.record(path, self.config, step, self.assembly.step.positives, last)
            sentence = f"step {step}: loss or gradient is not finite; the batch is told in {path}"
            if self.config.engine.nonfinite == "raise":
                raise NonFinite(f"{sentence}; it changed no weight; look at it, or set engine.nonfinite=skip")
            self.tell(f"{sentence}; it was skipped")

    def _log(self, outcome: Outcome) -> None:
        was_collapsed = self.metrics.get("collapsed", False)
        metrics = measured(self.config, self.step, outcome, self.skipped)
        self.metrics = metrics | {"timing": timing(self._images, self._since, self.device)}
        self._since, self._images = time.monotonic(), 0
        if metrics["collapsed"] and not was_collapsed:
            self.tell(
                f"step {self.step}: samples of a class are {metrics['spread']:.2f} as far apart as data: a collapse?"
            )
        self._write(self.metrics)

    def _write(self, metrics: Mapping[str, Any]) -> None:
        if self.log is not None and self.board is not None:
            self.log.append(metrics)
            self.board.add(metrics)

    def _evaluate(self) -> None:
        if self.evaluate is None or not self._evaluated():
            return
        numbers = {name: float(value) for name, value in self.evaluate(self.state.average.generator, self.step).items()}
        self._write({"step": self.step, "evaluation": numbers})
        fid = numbers.get("fid", math.nan)
        if math.isfinite(fid) and (self.best is None or fid < self.best["fid"]):
            self.best = {"step": self.step, "fid": fid}

    def _picture(self) -> None:
        every = self.config.cadence.grid_every
        if self.writes and every is not None and (self.step % every == 0 or self.step == self.config.cadence.steps):
            path = self.run.path / SAMPLES / f"step-{self.step:08d}.png"
            with told_if_not_written(self.run.path):
                picture(self.state.average.generator, self.assembly.samples, self.device, path)

    def _save(self) -> None:
        if self.log is None:
            return
        facts = {
            "metrics_offset": self.log.offset(),
            "skipped": self.skipped,
            "best": self.best,
            "metrics": {name: value for name, value in self.metrics.items() if name != "timing"},
            "positives_seen": self.config.positives_seen(self.step),
        }
        saved = checkpoint.Checkpoint(self.step, self.state.tensors(), facts)
        checkpoint.save(self.run.checkpoints, saved, run=self.run.id)
        best = None if self.best is None else self.best["step"]
        cadence = self.config.cadence
        prune(self.run.checkpoints, keep_last=cadence.keep_last, keep_every=cadence.keep_every, best=best)
