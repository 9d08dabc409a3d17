"""A step of a run again: state after k steps, the newest that is there with k ≤ step, then steps k, k + 1, … step.

Everything that a step draws is a function of (seed, step), so that it comes out as it did, bit for bit on the same
machine and number of threads. Nothing is written to the run; it may go on meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from truedrift.progress import silent
from truedrift.training import checkpoint
from truedrift.training.assembly import assemble, find_device, samples_of
from truedrift.training.parts import Parts
from truedrift.training.run import RunDirectory, open_run
from truedrift.training.step import Outcome
from truedrift.validation import mistake


def replay(run_path: Path, step: int, *, parts: Parts | None = None, device: str = "cpu") -> Outcome:
    """The outcome of step number `step`, counted from 0 as in RUN/incidents; `parts` as they were given to `train`."""
    run, parts = open_run(Path(run_path)), parts or Parts()
    _require_step(run, step)
    _require_parts(run, parts)
    samples = samples_of(run.config, parts)
    run.require_own(samples)
    assembly = assemble(run.config, parts, samples, find_device(device), silent)
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
        except checkpoint.Damaged:
            continue
    return None


def _require_step(run: RunDirectory, step: int) -> None:
    steps = run.config.cadence.steps
    if not 0 <= step < steps:
        raise mistake(f"step is {step}", f"allowed is 0 to {steps - 1}", "take the number that the incident tells")


def _require_parts(run: RunDirectory, parts: Parts) -> None:
    if parts.names() != dict(run.parts):
        came = f"the run has parts {dict(run.parts)} and was given {parts.names()}"
        raise mistake(came, "allowed are parts of the same names", "pass parts= as to train")
