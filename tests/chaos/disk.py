"""A disk that is full or broken: an operation fails, or files may not grow.

The command must end with one line and status 2, or go on if the file is optional. Checkpoints that were complete stay
intact, and the same command ends as the run that was not attacked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oracles.outcomes import read_outcome

from truedrift.training import checkpoint as checkpoint_module
from truedrift.training import loggers as loggers_module
from truedrift.training.loggers import LOGGERS, Loggers, TensorBoard

from .commands import Before, find_problem, replace_everywhere
from .operations import ERRORS, AtOperation, last_saved_step, read_operations
from .runs import Bench, train_arguments
from .table import Attack


@dataclass(frozen=True)
class FailAt:
    """The operation that fails, and its error."""

    number: int
    error: int
    lasting: bool

    def __str__(self) -> str:
        return f"operation {self.number}, {errno.errorcode[self.error]}{', and all later ones' if self.lasting else ''}"


def draw_failure(bench: Bench, rng: random.Random, number: int) -> FailAt:
    error = rng.choice(ERRORS)
    lasting = error == errno.ENOSPC and rng.random() < 0.7
    return FailAt(rng.randint(1, len(bench.operations)), error, lasting)


def fail_at_operation(bench: Bench, failure: FailAt, before: Sequence[Before]) -> str | None:
    """Let an operation fail, then run the same command again."""
    folder = bench.new_folder()
    run, log = folder / "run", folder / "operations"
    at = AtOperation(run, log, failure.number, error=failure.error, lasting=failure.lasting)
    ended = bench.run(train_arguments(run), folder, [*before, at])
    problem = find_problem(ended)
    if problem is not None:
        return problem
    # The save of a manifest is complete with the fsync after its rename.
    saved = last_saved_step(read_operations(log)[: failure.number - 1], done=False)
    return bench.resume(run, before, least=saved)


def remove_checkpoints_first() -> None:
    """Break the save: older checkpoints are removed before the new one is written."""
    save = checkpoint_module.save

    def save_after_removal(directory: Path, saved: Any, *, run: str) -> Path:
        for step in checkpoint_module.steps(directory):
            shutil.rmtree(directory / checkpoint_module.directory_name(step))
        return save(directory, saved, run=run)

    replace_everywhere("save", save_after_removal)


# ---- Limits on the size of files ----


def limit_file_size(size: int) -> None:
    """Limit every file of this process to that many bytes; a longer write fails with EFBIG."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def fill_disk(bench: Bench, size: int, before: Sequence[Before]) -> str | None:
    """Run with that limit, then without it."""
    folder = bench.new_folder()
    run = folder / "run"
    ended = bench.run(train_arguments(run), folder, [*before, partial(limit_file_size, size)])
    problem = find_problem(ended)
    return problem or bench.resume(run, before)


def pass_errors() -> None:
    """Break the messages: an error of the disk is not caught where files of the run are written."""
    replace_everywhere("write_errors_as_user_errors", lambda path: contextlib.nullcontext())


# ---- TensorBoard ----


def fill_tensorboard(number: int) -> None:
    """Let TensorBoard's file be on a full disk from its write number `number` on."""
    write, done = TensorBoard._write, 0

    def write_to_full_disk(self: TensorBoard, event: Any) -> None:
        nonlocal done
        done += 1
        if done == number:
            os.dup2(os.open("/dev/full", os.O_WRONLY), self._file.fileno())
        write(self, event)

    TensorBoard._write = write_to_full_disk  # type: ignore[method-assign]


def attack_tensorboard(bench: Bench, number: int, before: Sequence[Before]) -> str | None:
    """Fill TensorBoard's disk; number 0 puts a file in the place of its folder. The run must not notice."""
    folder = bench.new_folder()
    run = folder / "run"
    attack = block_folder if number == 0 else partial(fill_tensorboard, number)
    ended = bench.run(train_arguments(run), folder, [*before, attack])
    problem = find_problem(ended, allowed=(0,))
    if problem is not None:
        return problem
    if sum("TensorBoard is off" in line for line in ended.messages) != 1:
        return f"not reported once: {ended.err}"
    return bench.find_difference(run)


def block_folder() -> None:
    """Put a file in the place of the folder of TensorBoard, when it is about to be made."""
    made = TensorBoard.__init__

    def make(self: TensorBoard, run: Path, *rest: Any) -> None:
        (run / "tensorboard").write_bytes(b"")
        made(self, run, *rest)

    TensorBoard.__init__ = make  # type: ignore[method-assign]


def keep_failing() -> None:
    """Break the logger: its failure ends the run."""
    Loggers._drop_on_failure = lambda self, name: contextlib.nullcontext()  # type: ignore[method-assign]


# ---- Folders of loggers ----


LOSSES = ("link in its place", "removed", "renamed", "link from the start")


@dataclass(frozen=True)
class Loss:
    """A logger, and what happens to its folder."""

    name: str
    how: str


def draw_loss(rng: random.Random, number: int) -> Loss:
    """Draw every logger with every loss: the first three cases have all loggers."""
    names = list(LOGGERS)
    return Loss(names[number % len(names)], LOSSES[(number + number // len(names)) % len(LOSSES)])


def lose_folder(loss: Loss, run: Path, elsewhere: Path) -> None:
    """Remove, rename or replace the folder of a logger before its third line, or plant a link before it is made."""
    os.environ["WANDB_MODE"] = "offline"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    folder, add, done = run / loss.name, Loggers.add, 0
    if loss.how == "link from the start":
        run.mkdir()
        folder.symlink_to(elsewhere)
        return

    def lose_then_add(self: Loggers, metrics: Any) -> None:
        nonlocal done
        done += 1
        if done == 3:
            folder.rename(run.with_name("old"))
            if loss.how == "removed":
                shutil.rmtree(run.with_name("old"))
            elif loss.how == "link in its place":
                folder.symlink_to(elsewhere)
        add(self, metrics)

    Loggers.add = lose_then_add  # type: ignore[method-assign]


def attack_logger(bench: Bench, loss: Loss, before: Sequence[Before]) -> str | None:
    """Let a logger lose its folder. It is reported once, nothing is written elsewhere, and the run does not notice."""
    folder = bench.new_folder()
    run, elsewhere = folder / "run", folder / "elsewhere"
    elsewhere.mkdir()
    arguments = train_arguments(run, "--log", loss.name)
    ended = bench.run(arguments, folder, [*before, partial(lose_folder, loss, run, elsewhere)])
    problem = find_problem(ended, allowed=(0,))
    if problem is not None:
        return problem
    if any(elsewhere.iterdir()):
        return "written through the link"
    if sum(" is off (" in line for line in ended.messages) != 1:
        return f"not reported once: {ended.err}"
    return None if read_outcome(run) == bench.outcome else "the run differs"


def check_no_places() -> None:
    """Break the loggers: links are followed, and lost folders are not noticed."""
    loggers_module._Places.check = lambda self: None  # type: ignore[method-assign]
    loggers_module._make_folder = lambda path: path.mkdir(exist_ok=True) or path  # type: ignore[func-returns-value]


def attacks(bench: Bench) -> list[Attack]:
    def draw_in_second_save(rng: random.Random, number: int) -> FailAt:
        renamed = bench.operations.index("rename checkpoints/step-00000006/.manifest.json.writing")
        return FailAt(renamed + rng.randint(-4, -1), errno.ENOSPC, lasting=True)

    return [
        Attack(
            "a file operation of train fails",
            lambda rng, number: draw_failure(bench, rng, number),
            lambda failure, before: fail_at_operation(bench, failure, before),
            control="old checkpoints removed before the save",
            broken=remove_checkpoints_first,
            quick_tries=3,
            weight=2,
            control_draw=draw_in_second_save,
        ),
        Attack(
            "files of train may not grow",
            lambda rng, number: int(2 ** rng.uniform(10.5, 15)),
            lambda size, before: fill_disk(bench, size, before),
            control="write errors not caught",
            broken=pass_errors,
        ),
        Attack(
            "TensorBoard cannot be written",
            lambda rng, number: number,
            lambda number, before: attack_tensorboard(bench, number, before),
            control="its errors end the run",
            broken=keep_failing,
            quick_tries=2,
            cases=9,
        ),
        Attack(
            "folder of a logger lost or replaced by a link",
            draw_loss,
            lambda loss, before: attack_logger(bench, loss, before),
            control="folders not checked",
            broken=check_no_places,
            quick_tries=3,
            cases=12,
            control_draw=lambda rng, number: Loss("tensorboard", LOSSES[number % len(LOSSES)]),
        ),
    ]
