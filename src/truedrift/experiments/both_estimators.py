"""The digits trained with Standard and with ABC, everything else equal, judged on the way: what the demo shows.

Each run is a directory of its own, so that a demo that was interrupted goes on where it was.
"""

from __future__ import annotations

from pathlib import Path

from truedrift.experiments.study import Setting
from truedrift.recipes import recipe
from truedrift.recipes.judging import judge
from truedrift.training.assembly import find_device
from truedrift.training.config import RunConfig
from truedrift.training.entry import train
from truedrift.training.interruption import EXIT_STATUS_KEYBOARD

ESTIMATORS = ("standard", "abc")
EPOCHS = 25


class Interrupted(Exception):
    """A signal asked a run to stop; its state is saved."""

    status = EXIT_STATUS_KEYBOARD


def both(setting: Setting, directory: Path, epochs: int) -> list[Path]:
    """The two run directories, trained to the end."""
    return [_trained(_config(name, setting.seed, epochs), directory, setting) for name in ESTIMATORS]


def _config(estimator: str, seed: int, epochs: int) -> RunConfig:
    settings = (f"cadence.epochs={epochs}", "cadence.evaluate_every_epochs=1", "cadence.grid_every=250")
    return recipe("digits", given={"estimator": estimator, "seed": seed}, settings=settings)


def _trained(config: RunConfig, directory: Path, setting: Setting) -> Path:
    name = config.objective.estimator_pos
    out = directory / f"digits-{name}-seed{config.seed}"
    what = f"training the digits, {name}"
    evaluate = judge(config, device=find_device("cpu"))

    def progress(_: str, done: float, total: float) -> None:
        setting.progress(what, done, total)

    for report in train(config, out=out, device="cpu", evaluate=evaluate, progress=progress):
        if report.interrupted is not None:
            raise Interrupted(f"saved at step {report.step} of {report.steps} in {out}")
    return out
