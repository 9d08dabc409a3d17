"""Runs of `truedrift train digits` killed with signal 9 at random moments and inside of saves, then started again.

    python -m tests.training.kills --kills 20        a table of the kills, and whether the end was the same

A kill counts as inside of a save only if it left something of one behind: a directory `.writing-…`, or one of a step
without its manifest that is newer than every whole checkpoint. The end of a run is the sha256 of all tensors of its
last checkpoint, and every line of metrics.jsonl without its timing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from truedrift.training import checkpoint
from truedrift.training.run_directory import open_run

STEPS_A_KILL = 40
LIMIT_SECONDS = 120.0
LOOK_EVERY_SECONDS = 0.0005

PRELOADED = ["kills", "truedrift.cli.main", "torch._dynamo", "torch.utils.tensorboard", "sklearn.datasets"]

FORGETFUL = """
import sys
from truedrift.training.state import TrainingState

load = TrainingState.load

def without_average(self, tensors):
    load(self, {**tensors, "ema": tensors["generator"]})

TrainingState.load = without_average
from truedrift.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The control: a program to which the average in a checkpoint is worth nothing, as if it had been left out."""


class Running(Protocol):
    """A process that trains."""

    pid: int | None

    def ended(self) -> int | None: ...
    def kill(self) -> None: ...


class Command:
    """The command in a process of its own, as a person starts it."""

    def __init__(self, arguments: list[str], errors: Path, program: tuple[str, ...] = ("-m", "truedrift")) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with errors.open("ab") as file:
            command = [sys.executable, *program, *arguments]
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=environment)
        self.pid = self._process.pid

    def ended(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def forgetful(arguments: list[str], errors: Path) -> Command:
    """The control as a command."""
    return Command(arguments, errors, ("-c", FORGETFUL))


class Forked:
    """The same, forked from a process that has imported everything: half a second instead of ten."""

    def __init__(self, arguments: list[str], errors: Path, code: str | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(target=forked, args=(arguments, errors, code))
        self._process.start()
        self.pid = self._process.pid

    def ended(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def forked(arguments: list[str], errors: Path, code: str | None) -> None:
    """In the new process: the command with these arguments."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a shell ignore it
    torch.set_num_threads(1)
    sys.argv = ["truedrift", *arguments]
    if code is not None:
        exec(code, {"__name__": "__main__"})
    from truedrift.cli.main import main

    sys.exit(main(arguments))


Launch = Callable[[list[str], Path], Running]


@dataclass(frozen=True)
class Kill:
    """One kill and what it left."""

    aimed: bool
    """At a save; otherwise at any moment."""
    newest: int
    """Step of the newest whole checkpoint, 0 if there is none."""
    left: tuple[str, ...]
    """What a save had begun."""

    @property
    def inside_save(self) -> bool:
        return bool(self.left)


@dataclass(frozen=True)
class End:
    """What must not depend on kills."""

    state: str
    metrics: tuple[str, ...]


def arguments_of(steps: int, out: Path) -> list[str]:
    """A small run of the digits that saves every fifth step."""
    settings = {
        "cadence.epochs": 1,
        "cadence.steps_per_epoch": steps,
        "cadence.log_every": 4,
        "cadence.checkpoint_every": 5,
        "cadence.grid_every": 50,
        "generator.width": 64,
        "optimizer.ema": 0.99,
    }
    pairs = [each for name, value in settings.items() for each in ("--set", f"{name}={value}")]
    return ["train", "digits", *pairs, "--device", "cpu", "--out", str(out)]


def state_hash(run: Path) -> str:
    """sha256 over every tensor of the last checkpoint: file, name, type, shape, bytes."""
    directory = run / "checkpoints"
    last = checkpoint.load(directory / checkpoint.directory_name(checkpoint.steps(directory)[-1]), run=open_run(run).id)
    sha256 = hashlib.sha256(f"{last.step} {last.facts['skipped']} {last.facts['best']}".encode())
    for file, tensors in sorted(last.tensors.items()):
        for name, tensor in sorted(tensors.items()):
            sha256.update(f"{file} {name} {tensor.dtype} {list(tensor.shape)}".encode())
            sha256.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()


def metrics_of(run: Path) -> tuple[str, ...]:
    """The lines of metrics.jsonl without what depends on the machine's speed."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return tuple(json.dumps({name: value for name, value in line.items() if name != "timing"}) for line in lines)


def end_of(run: Path) -> End:
    return End(state_hash(run), metrics_of(run))


def begun(run: Path) -> tuple[str, ...]:
    """What is there of a save that has not ended."""
    directory = run / "checkpoints"
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    newest = max(checkpoint.steps(directory), default=-1)
    steps = [name for name in names if name.startswith("step-") and int(name.removeprefix("step-")) > newest]
    unfinished = [name for name in steps if not (directory / name / "manifest.json").exists()]
    return tuple(sorted([name for name in names if name.startswith(".writing-")] + unfinished))


def wait_until(there: Callable[[], bool], process: Running) -> bool:
    """False if the process ended before."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not there():
        if process.ended() is not None:
            return False
        assert time.monotonic() < deadline, "the process neither works nor ends"
        time.sleep(LOOK_EVERY_SECONDS)
    return True


def holds(run: Path, process: Running) -> bool:
    """Whether the process has opened the run."""
    lock = run / "lock"
    return lock.exists() and lock.read_text().split(" ")[0] == str(process.pid)


def pause(seconds: float, run: Path, process: Running) -> None:
    """So long, but on a fast machine no further than four saves, so that steps are left for the kills to come."""
    end, last = time.monotonic() + seconds, max(checkpoint.steps(run / "checkpoints"), default=0) + 20
    wait_until(
        lambda: time.monotonic() >= end or max(checkpoint.steps(run / "checkpoints"), default=0) >= last, process
    )


def kill_once(launch: Launch, arguments: list[str], run: Path, aimed: bool, chance: random.Random) -> Kill | None:
    """Start, wait for the moment, kill; None if the run was complete before. What lay there already is not counted."""
    old = set(begun(run))
    process = launch(arguments, run.with_suffix(".err"))
    if not wait_until(lambda: holds(run, process), process):
        return None
    if aimed:
        for _ in range(chance.randint(1, 4)):  # the last of these saves is the one
            before = max(checkpoint.steps(run / "checkpoints"), default=0)
            wait_until(lambda before=before: max(checkpoint.steps(run / "checkpoints"), default=0) > before, process)
        wait_until(lambda: not old.issuperset(begun(run)), process)
        time.sleep(chance.uniform(0, 0.006))
    elif chance.random() < 0.5:  # while it opens the run and begins
        pause(chance.uniform(0, 2.0), run, process)
    else:  # while it works
        before = max(checkpoint.steps(run / "checkpoints"), default=0)
        wait_until(lambda: max(checkpoint.steps(run / "checkpoints"), default=0) > before, process)
        pause(chance.uniform(0, 0.4), run, process)
    if process.ended() is not None:
        return None
    process.kill()
    return Kill(
        aimed,
        max(checkpoint.steps(run / "checkpoints"), default=0),
        tuple(name for name in begun(run) if name not in old),
    )


def killed(launch: Launch, arguments: list[str], run: Path, kills: int, seed: int) -> list[Kill]:
    """Kill the run that often, then let it come to its end."""
    chance, done = random.Random(seed), []
    for number in range(kills):
        kill = kill_once(launch, arguments, run, number % 2 == 0, chance)
        if kill is None:
            break
        done.append(kill)
    complete(launch, arguments, run)
    return done


def complete(launch: Launch, arguments: list[str], run: Path) -> End:
    """Run to the end, and how it ended."""
    process = launch(arguments, run.with_suffix(".err"))
    wait_until(lambda: process.ended() is not None, process)
    assert process.ended() == 0, run.with_suffix(".err").read_text()[-2000:]
    return end_of(run)


def table(kills: list[Kill]) -> str:
    rows = [f"{'kill':>4}  {'aimed at':10}  {'newest checkpoint':>17}  left of a save"]
    rows += [
        f"{number:>4}  {'a save' if kill.aimed else 'any moment':10}  {kill.newest:>17}  {', '.join(kill.left) or '–'}"
        for number, kill in enumerate(kills, start=1)
    ]
    inside = sum(kill.inside_save for kill in kills)
    return "\n".join((*rows, f"{len(kills)} kills, {inside} of them inside of a save"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        steps = STEPS_A_KILL * options.kills
        runs = {name: Path(room) / name for name in ("whole", "killed", "forgetful")}
        whole = complete(Command, arguments_of(steps, runs["whole"]), runs["whole"])
        kills = killed(Command, arguments_of(steps, runs["killed"]), runs["killed"], options.kills, options.seed)
        print(table(kills))
        same = end_of(runs["killed"]) == whole
        print(f"{steps} steps, final state {whole.state[:16]}…, {len(whole.metrics)} lines of metrics: ", end="")
        print("the same as without kills" if same else "NOT the same as without kills")
        killed(forgetful, arguments_of(steps, runs["forgetful"]), runs["forgetful"], 2, options.seed)
        red = end_of(runs["forgetful"]).state != whole.state
        print(f"control, 2 kills, average not restored: {'another state' if red else 'THE SAME STATE'}")
    return 0 if same and red and len(kills) == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
