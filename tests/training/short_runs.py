"""Runs of a few steps, and ways to interrupt them."""

import os
import signal
from pathlib import Path

from oracles.outcomes import Outcome, read_outcome

from truedrift.recipes import PAPER_FIELD, recipe
from truedrift.training import train

SETTINGS = (
    "generator.width=16",
    "generator.depth=1",
    "generator.noise=4",
    "generator.embedding=4",
    "batch.n=3",
    "optimizer.warmup_steps=2",
    "optimizer.ema=0.8",
    "cadence.epochs=4",
    "cadence.steps_per_epoch=2",
    "cadence.log_every=2",
    "cadence.checkpoint_every=3",
    "cadence.grid_every=none",
)
"""Eight steps, saved after steps 3, 6 and 8."""


class SimulatedCrash(Exception):
    """The process ends without saving, as after SIGKILL."""


def short_config(name="digits", *settings, **given):
    """Return a small version of the recipe, in the paper's field.

    A setting of a section, such as generator={…}, replaces the section.
    """
    return recipe(name, given=given, tree=PAPER_FIELD, settings=(*SETTINGS, *settings))


def run(config, out: Path, **options) -> list:
    """Run to the end and return all reports."""
    return list(train(config, out=out, device="cpu", **options))


def run_outcome(config, out: Path, **options) -> Outcome:
    """Run to the end and return the outcome."""
    run(config, out, **options)
    return read_outcome(out)


def at_step(step: int, action):
    """Return a progress function that calls the action after that many steps."""

    def progress(what, done, total):
        if what == "training" and done == step:
            action()

    return progress


def send_signal(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def crash():
    raise SimulatedCrash
