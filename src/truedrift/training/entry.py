"""`train(config)`: a run from its first step to its last, or from where it was to there; yields what is logged.

Checks come first, then what the configuration names is built, then the directory is locked, then steps are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from truedrift import collectives
from truedrift.data.samples import Samples
from truedrift.progress import Progress, silent
from truedrift.training.assembly import assemble, find_device, samples_of
from truedrift.training.config import RunConfig
from truedrift.training.consistency import require_consistent
from truedrift.training.interruption import Interruption
from truedrift.training.ledger import Ledger, Tell
from truedrift.training.lock import RunLock
from truedrift.training.loop import Evaluate, Loop, Report
from truedrift.training.memory import told_if_too_small
from truedrift.training.parts import Parts
from truedrift.training.run import RunDirectory, made


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
    return _run(run, parts, samples, where, evaluate, progress, tell or _to_nobody)


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
        ledger = None
        if collectives.rank() == 0:
            stack.enter_context(RunLock(made(run.path)))
            run.begin(samples)
            ledger = stack.enter_context(closing(Ledger(run, assembly.state, tell)))
        told = tell if ledger is not None else _to_nobody
        loop = Loop(run, assembly, ledger, evaluate=evaluate, progress=progress, tell=told)
        yield from loop.reports(interruption)


def _to_nobody(sentence: str) -> None:
    pass


class BrokenOff(Exception):
    """A signal came before the first step, during work that can be broken off."""


def _breaking_off(progress: Progress, interruption: Interruption) -> Progress:
    """The same, but it raises once a signal has asked to stop."""

    def told(what: str, done: float, total: float) -> None:
        progress(what, done, total)
        if interruption.asked is not None:
            raise BrokenOff(interruption.asked)

    return told
