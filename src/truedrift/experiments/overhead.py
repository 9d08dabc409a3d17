"""What the correction costs at n = 8: time of an epoch, memory, parameters (`tab:overhead`).

Standard and ABC are measured in a process of their own each, eager and then compiled. The two processes of a pair take
their epochs in turn, so that whatever else the machine does falls on both. The first epoch warms up (and compiles) and
is not counted; ten follow, or two at `smoke`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truedrift.experiments.grids.catalog import IMAGES
from truedrift.experiments.grids.grounds import ground
from truedrift.experiments.study import Scale, Setting
from truedrift.recipes import recipe
from truedrift.records import Cost, Overhead, provenance
from truedrift.training.assembly import samples_of
from truedrift.training.config import RunConfig
from truedrift.training.parts import Parts
from truedrift.validation import mistake

ITEM = "tab:overhead"
N = 8
ESTIMATORS = ("standard", "abc")
EPOCHS, SMOKE_EPOCHS = 10, 2


def configs(setting: Setting) -> list[RunConfig]:
    """Of the four measurements, in pairs."""
    on = ground(setting, IMAGES, ITEM)
    return [
        recipe(
            on.recipe,
            given={"n": N, "seed": on.seeds[0], "estimator": estimator},
            settings=(f"engine.compiled={'true' if compiled else 'false'}",),
        )
        for compiled in (False, True)
        for estimator in ESTIMATORS
    ]


def epochs_of(scale: Scale) -> int:
    """Of each measurement, with the one that warms up."""
    return 1 + (SMOKE_EPOCHS if scale == "smoke" else EPOCHS)


def require_able(setting: Setting) -> None:
    """The data set is one of the item's, and it is here: checked before anything starts."""
    samples_of(configs(setting)[0], Parts())


def study(setting: Setting) -> Overhead:
    """Both pairs, one after the other."""
    started = time.monotonic()
    found = configs(setting)
    epochs = epochs_of(setting.scale)
    eager = _measured(found[:2], epochs, 0, setting)
    compiled = _measured(found[2:], epochs, 2 * epochs, setting)
    told = eager[0].told
    return Overhead(
        scale=setting.scale,
        data=found[0].data.name,
        recipe=found[0].recipe,
        n=N,
        steps_per_epoch=found[0].cadence.steps_per_epoch,
        device=told["device"],
        threads=told["threads"],
        costs=tuple(map(_cost, found, (*eager, *compiled))),
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )


@dataclass
class Measured:
    """What a process has told so far."""

    seconds: list[float] = field(default_factory=list)
    """Of every epoch."""
    told: dict[str, Any] = field(default_factory=dict)
    """At its end: memory_megabytes, parameters, device, threads."""


def _cost(config: RunConfig, measured: Measured) -> Cost:
    return Cost(
        estimator=config.objective.estimator_pos,
        compiled=config.engine.compiled,
        epoch_seconds=tuple(measured.seconds[1:]),
        memory_megabytes=measured.told["memory_megabytes"],
        parameters=measured.told["parameters"],
    )


def _measured(pair: list[RunConfig], epochs: int, before: int, setting: Setting) -> list[Measured]:
    """The processes take their epochs in turn."""
    found = [Measured() for _ in pair]
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(config, setting.device)) for config in pair]
        for epoch in range(epochs):
            for number, process in enumerate(processes):
                found[number].seconds.append(process.asked("epoch"))
                setting.progress(ITEM, before + len(pair) * epoch + number + 1, 4 * epochs)
        for each, process in zip(found, processes, strict=True):
            each.told = process.asked("end")
    return found


class Measuring:
    """A process that answers a word with a line of JSON."""

    def __init__(self, process: subprocess.Popen[str], errors: Any) -> None:
        self._process, self._errors = process, errors

    def asked(self, word: str) -> Any:
        """Its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _ended(self) -> Exception:
        self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-1:]
        came = f"a measurement ended with status {self._process.returncode} ({' '.join(last) or 'it said nothing'})"
        return mistake(came, "allowed is a machine that can train and compile", "look at that, and run it again")


@contextmanager
def _process(config: RunConfig, device: str) -> Iterator[Measuring]:
    """Started, and at its end stopped."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as errors:
        path = Path(scratch) / "config.json"
        path.write_text(json.dumps(config.tree()), encoding="utf-8")
        pipe = subprocess.PIPE
        with subprocess.Popen(_command(path, device), stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:
            try:
                yield Measuring(process, errors)
            finally:
                process.kill()


def _command(config: Path, device: str) -> list[str]:
    return [sys.executable, "-m", "truedrift.experiments.overhead_process", str(config), device]
