"""`train(config)`: a run from its first step to its last, or from where it was to there; yields what is logged.

Checks come first, then what the configuration names is built, then the directory is locked, then steps are taken.

A step of a run again: state after k steps, the newest that is there with k ≤ step, then steps k, k + 1, … step.

Everything that a step draws is a function of (seed, step), so that it comes out as it did, bit for bit on the same
machine and number of threads. Nothing is written to the run; it may go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from truedrift import distributed
from truedrift.data.samples import Samples
from truedrift.errors import UserError
from truedrift.progress import Progress, no_progress
from truedrift.training import checkpoint
from truedrift.training.config import RunConfig, validated_config
from truedrift.training.journal import Notify, RunJournal
from truedrift.training.loop import Evaluate, Loop, TrainingReport
from truedrift.training.run_directory import RunDirectory, RunLock, make_run_directory, open_run
from truedrift.training.setup import Parts, build_setup, load_samples, memory_errors_as_user_errors, resolve_device
from truedrift.training.signals import StopSignal
from truedrift.training.step import StepResult


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
    progress: Progress = no_progress,
    tell: Notify | None = None,
) -> Iterator[TrainingReport]:
    """Train, or go on training, the run of this configuration; checks come before the first report is asked for.

    `parts` are Python objects in place of what the configuration names. `evaluate` is called every
    `cadence.evaluate_every_epochs` epochs, and the state it saw is saved. `tell` gets sentences that a person should
    see.
    """
    config, parts = validated_config(config), parts or Parts()
    where = resolve_device(device)
    samples = load_samples(config, parts)
    run = run_directory(config, parts, None if out is None else Path(out))
    return _run(run, parts, samples, where, evaluate, progress, tell or _ignore)


def _run(
    run: RunDirectory,
    parts: Parts,
    samples: Samples,
    device: torch.device,
    evaluate: Evaluate | None,
    progress: Progress,
    tell: Notify,
) -> Iterator[TrainingReport]:
    with ExitStack() as stack:
        stack.enter_context(memory_errors_as_user_errors())
        stack.enter_context(distributed.process_group(device))
        interruption = stack.enter_context(StopSignal())
        run.require_own(samples)  # before work that takes minutes; again when the directory is locked
        try:
            assembly = build_setup(run.config, parts, samples, device, _interruptible(progress, interruption))
        except InterruptedBeforeStart as signal:
            yield TrainingReport(run.path, 0, run.config.cadence.steps, {}, str(signal))
            return
        ledger = None
        if distributed.rank() == 0:
            stack.enter_context(RunLock(make_run_directory(run.path)))
            run.begin(samples)
            ledger = stack.enter_context(closing(RunJournal(run, assembly.state, tell)))
        told = tell if ledger is not None else _ignore
        loop = Loop(run, assembly, ledger, evaluate=evaluate, progress=progress, tell=told)
        yield from loop.reports(interruption)


def _ignore(sentence: str) -> None:
    pass


class InterruptedBeforeStart(Exception):
    """A signal came before the first step, during work that can be broken off."""


def _interruptible(progress: Progress, interruption: StopSignal) -> Progress:
    """The same, but it raises once a signal has asked to stop."""

    def told(what: str, done: float, total: float) -> None:
        progress(what, done, total)
        if interruption.asked is not None:
            raise InterruptedBeforeStart(interruption.asked)

    return told


def replay(run_path: Path, step: int, *, parts: Parts | None = None, device: str = "cpu") -> StepResult:
    """The outcome of step number `step`, counted from 0 as in RUN/incidents; `parts` as they were given to `train`."""
    run, parts = open_run(Path(run_path)), parts or Parts()
    _require_step(run, step)
    _require_parts(run, parts)
    samples = load_samples(run.config, parts)
    run.require_own(samples)
    assembly = build_setup(run.config, parts, samples, resolve_device(device), no_progress)
    found = _newest_until(run, step)
    if found is not None:
        assembly.state.load(found.tensors)
    for number in range(0 if found is None else found.step, step):
        assembly.step(number)
    return assembly.step(step)


def _newest_until(run: RunDirectory, step: int) -> checkpoint.Checkpoint | None:
    """The newest checkpoint of at most `step` steps that is as it was saved; None: the state before the first."""
    for saved in reversed([saved for saved in checkpoint.steps(run.checkpoints) if saved <= step]):
        try:
            return checkpoint.load(run.checkpoints / checkpoint.directory_name(saved), run=run.id)
        except checkpoint.DamagedCheckpoint:
            continue
    return None


def _require_step(run: RunDirectory, step: int) -> None:
    steps = run.config.cadence.steps
    if not 0 <= step < steps:
        raise UserError(f"step is {step}", f"allowed is 0 to {steps - 1}", "take the number that the incident tells")


def _require_parts(run: RunDirectory, parts: Parts) -> None:
    if parts.names() != dict(run.parts):
        came = f"the run has parts {dict(run.parts)} and was given {parts.names()}"
        raise UserError(came, "allowed are parts of the same names", "pass parts= as to train")
