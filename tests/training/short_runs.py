"""Runs of a few steps, and ways to stop them."""

import os
import signal
from pathlib import Path

from kills import End, end_of

from truedrift.recipes.overrides import recipe
from truedrift.training.train import train

TINY = (
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
"""Eight steps, saved after 3, 6 and 8."""


class Dropped(Exception):
    """The process is gone, as after signal 9."""


def tiny(name="digits", *settings, **given):
    """The recipe made small; a whole group, such as generator={…}, takes the place of the one before."""
    return recipe(name, given=given, settings=(*TINY, *settings))


def run(config, out: Path, **options) -> list:
    """Every report of the run to its end."""
    return list(train(config, out=out, device="cpu", **options))


def end(config, out: Path, **options) -> End:
    run(config, out, **options)
    return end_of(out)


def at(step: int, act):
    """A progress that acts after that many steps."""

    def progress(what, done, total):
        if what == "training" and done == step:
            act()

    return progress


def ask(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def drop():
    raise Dropped
