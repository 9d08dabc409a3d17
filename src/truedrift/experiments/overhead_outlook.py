"""`tab:overhead` before anything of it is done: what is measured, and what that costs."""

from __future__ import annotations

from truedrift.experiments.grids.cost import ABC_EPOCH_SECONDS, STANDARD_EPOCH_SECONDS
from truedrift.experiments.grids.outlook import spoken
from truedrift.experiments.grids.timed import STEPS, seconds_a_step
from truedrift.experiments.overhead import ITEM, N, configs, epochs_of
from truedrift.experiments.study import Setting
from truedrift.training.assembly import find_device, samples_of
from truedrift.training.config import RunConfig
from truedrift.training.parts import Parts
from truedrift.validation import Mistake


def measurements(setting: Setting) -> str:
    """What `--dry-run` prints."""
    found, epochs = configs(setting), epochs_of(setting.scale)
    each = f"{epochs} epochs of {found[0].cadence.steps_per_epoch} steps each, the first of them not counted"
    return "\n".join(
        (
            *map(_line, found),
            "",
            f"{ITEM} at scale {setting.scale} on {found[0].data.name}, n = {N}: {len(found)} measurements, {each}",
            _cost(found, epochs, setting),
        )
    )


def _line(config: RunConfig) -> str:
    return f"{config.objective.estimator_pos:10}{'compiled' if config.engine.compiled else 'eager'}"


def _cost(found: list[RunConfig], epochs: int, setting: Setting) -> str:
    compiling = "compiling comes on top"
    if setting.scale == "paper":
        seconds = epochs * 2 * (STANDARD_EPOCH_SECONDS + ABC_EPOCH_SECONDS)
        return f"estimate: {spoken(seconds)} on one A100, from the times that the paper tells; {compiling}"
    try:
        samples = samples_of(found[0], Parts())
    except Mistake as error:
        return f"no estimate: {error}"
    steps = epochs * found[0].cadence.steps_per_epoch * len(found)
    seconds = steps * seconds_a_step(found[0], samples, find_device(setting.device))
    return f"estimate: {spoken(seconds)} from {STEPS} steps of the first; {compiling}"
