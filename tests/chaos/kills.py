"""Kill a training at a file operation or at any moment, and start the same command again.

The outcome must be bit for bit that of the uninterrupted run, nothing may be left over, and a checkpoint whose manifest
had its name before the kill must be used.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from truedrift.training import TrainingState, checkpoint

from .commands import Before, replace_everywhere, wait_until
from .operations import AtOperation, last_saved_step, read_operations
from .runs import Bench, train_arguments
from .table import Attack


@dataclass(frozen=True)
class Kills:
    """Numbers of the operations at which the run is killed, one after the other."""

    operations: tuple[int, ...]
    torn: bool
    """Whether a write that is killed writes half of its bytes."""


def draw_kills(bench: Bench, rng: random.Random, number: int) -> Kills:
    """Draw one to three kills; every operation of the run is as likely as any other."""
    count = rng.choice((1, 1, 2, 3))
    return Kills(tuple(rng.randint(1, len(bench.operations)) for _ in range(count)), rng.random() < 0.5)


def kill_at_operations(bench: Bench, kills: Kills, before: Sequence[Before]) -> str | None:
    """Kill the run at these operations, then let it end."""
    folder = bench.new_folder()
    run, saved = folder / "run", 0
    for number in kills.operations:
        log = folder / f"operations-{time.monotonic_ns()}"
        ended = bench.run(train_arguments(run), folder, [*before, AtOperation(run, log, number, torn=kills.torn)])
        if ended.status != -9:
            break  # it had fewer operations
        saved = max(saved, last_saved_step(read_operations(log), done=False))
    return bench.resume(run, before, least=saved)


def write_manifest_first() -> None:
    """Break the save: the manifest gets its name before the files are written."""
    save = checkpoint.save

    def save_manifest_first(directory: Path, saved: checkpoint.Checkpoint, *, run: str) -> Path:
        with tempfile.TemporaryDirectory() as elsewhere:
            complete = save(Path(elsewhere), saved, run=run)
            (directory / complete.name).mkdir(parents=True, exist_ok=True)
            for file in sorted(complete.iterdir(), key=lambda path: path.name != "manifest.json"):
                shutil.copyfile(file, directory / complete.name / file.name)
        return directory / complete.name

    replace_everywhere("save", save_manifest_first)


# ---- Any moment ----


@dataclass(frozen=True)
class Moment:
    """The time of a kill: seconds after the run has locked its directory, or has saved that many times."""

    saves: int
    seconds: float


def draw_moment(rng: random.Random, number: int) -> Moment:
    """Draw a moment; a save comes every few hundredths of a second."""
    return Moment(rng.randrange(4), rng.uniform(0, 0.05))


def kill_at_moment(bench: Bench, moment: Moment, before: Sequence[Before]) -> str | None:
    """Kill the run at that moment, then let it end."""
    folder = bench.new_folder()
    run = folder / "run"
    process = bench.start(train_arguments(run), folder, before)
    awaited = f"checkpoints/step-{3 * moment.saves:08d}/manifest.json" if moment.saves else "lock"
    wait_until((run / awaited).exists, process)
    time.sleep(moment.seconds)
    process.kill()
    return bench.resume(run, before, least=3 * moment.saves)


def forget_average() -> None:
    """Break the resume: the averaged weights are not restored."""
    load = TrainingState.load

    def load_without_average(self: TrainingState, tensors: dict) -> None:
        load(self, {**tensors, "ema": tensors["generator"]})

    TrainingState.load = load_without_average  # type: ignore[method-assign]


def attacks(bench: Bench) -> list[Attack]:
    def draw_in_first_save(rng: random.Random, number: int) -> Kills:
        """Kill after the manifest was written, and before the files were."""
        return Kills((bench.operations.index("mkdir checkpoints") + 6 + number,), torn=False)

    return [
        Attack(
            "kill -9 at a file operation of train",
            lambda rng, number: draw_kills(bench, rng, number),
            lambda kills, before: kill_at_operations(bench, kills, before),
            control="manifest written before the files",
            broken=write_manifest_first,
            quick_tries=2,
            weight=4,
            control_draw=draw_in_first_save,
        ),
        Attack(
            "kill -9 at any moment of train",
            draw_moment,
            lambda moment, before: kill_at_moment(bench, moment, before),
            control="average not restored",
            broken=forget_average,
            control_draw=lambda rng, number: Moment(1, 0.0),
        ),
    ]
