"""Kill `truedrift train digits` with SIGKILL at random moments and during saves, and start it again.

    python -m tests.training.kills --kills 20        print the kills, and whether the final state is the same

A kill is inside a save only if it leaves an unfinished save: a directory `.writing-…`, or a step directory without a
manifest that is newer than every complete checkpoint. The outcome of a run is the sha256 of all tensors of its last
checkpoint, and every line of metrics.jsonl without its timing.
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

from truedrift.training import checkpoint, open_run

STEPS_PER_KILL = 40
TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.0005

PRELOADED = ["kills", "truedrift.cli.main", "torch._dynamo", "torch.utils.tensorboard", "sklearn.datasets"]

WITHOUT_AVERAGE = """
import sys
from truedrift.training import TrainingState

load = TrainingState.load

def load_without_average(self, tensors):
    load(self, {**tensors, "ema": tensors["generator"]})

TrainingState.load = load_without_average
from truedrift.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The negative control: a program that does not restore the averaged weights from a checkpoint."""


class TrainingProcess(Protocol):
    """A process that trains."""

    pid: int | None

    def exit_status(self) -> int | None: ...
    def kill(self) -> None: ...


class CommandProcess:
    """The command in a new process, as a user starts it."""

    def __init__(self, arguments: list[str], errors: Path, program: tuple[str, ...] = ("-m", "truedrift")) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with errors.open("ab") as file:
            command = [sys.executable, *program, *arguments]
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=environment)
        self.pid = self._process.pid

    def exit_status(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def start_without_average(arguments: list[str], errors: Path) -> CommandProcess:
    """Start the negative control as a command."""
    return CommandProcess(arguments, errors, ("-c", WITHOUT_AVERAGE))


class ForkedProcess:
    """The command, forked from a process that has imported everything: half a second instead of ten."""

    def __init__(self, arguments: list[str], errors: Path, code: str | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(target=run_forked, args=(arguments, errors, code))
        self._process.start()
        self.pid = self._process.pid

    def exit_status(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def run_forked(arguments: list[str], errors: Path, code: str | None) -> None:
    """Run the command, or other code, with these arguments in the new process."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
    torch.set_num_threads(1)
    sys.argv = ["truedrift", *arguments]
    if code is not None:
        exec(code, {"__name__": "__main__"})
    from truedrift.cli import main

    sys.exit(main(arguments))


Launcher = Callable[[list[str], Path], TrainingProcess]


@dataclass(frozen=True)
class Kill:
    """One kill and the unfinished save that it left."""

    at_save: bool
    """Whether it was timed to hit a save, and not a random moment."""
    newest_step: int
    """Step of the newest complete checkpoint, 0 if there is none."""
    unfinished: tuple[str, ...]
    """Names of unfinished directories."""

    @property
    def inside_save(self) -> bool:
        return bool(self.unfinished)


@dataclass(frozen=True)
class Outcome:
    """The final state and the metrics of a run, which must not depend on kills."""

    state: str
    metrics: tuple[str, ...]


def train_arguments(steps: int, out: Path) -> list[str]:
    """Return the arguments of a small run of the digits that saves every fifth step."""
    settings = {
        "cadence.epochs": 1,
        "cadence.steps_per_epoch": steps,
        "cadence.log_every": 4,
        "cadence.checkpoint_every": 5,
        "cadence.grid_every": 50,
        "generator.width": 64,
        "optimizer.ema": 0.99,
    }
    flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
    return ["train", "digits", *flags, "--device", "cpu", "--out", str(out)]


def hash_state(run: Path) -> str:
    """Hash every tensor of the last checkpoint: file, name, dtype, shape, bytes."""
    directory = run / "checkpoints"
    last = checkpoint.load(directory / checkpoint.directory_name(checkpoint.steps(directory)[-1]), run=open_run(run).id)
    sha256 = hashlib.sha256(f"{last.step} {last.facts['skipped']} {last.facts['best']}".encode())
    for file, tensors in sorted(last.tensors.items()):
        for name, tensor in sorted(tensors.items()):
            sha256.update(f"{file} {name} {tensor.dtype} {list(tensor.shape)}".encode())
            sha256.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()


def read_lines(run: Path) -> tuple[str, ...]:
    """Read the lines of metrics.jsonl without the timing, which depends on the machine."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return tuple(json.dumps({name: value for name, value in line.items() if name != "timing"}) for line in lines)


def read_outcome(run: Path) -> Outcome:
    return Outcome(hash_state(run), read_lines(run))


def unfinished_saves(run: Path) -> tuple[str, ...]:
    """Return the directories of saves that have not ended."""
    directory = run / "checkpoints"
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    newest = max(checkpoint.steps(directory), default=-1)
    newer = [name for name in names if name.startswith("step-") and int(name.removeprefix("step-")) > newest]
    without_manifest = [name for name in newer if not (directory / name / "manifest.json").exists()]
    return tuple(sorted([name for name in names if name.startswith(".writing-")] + without_manifest))


def newest_step(run: Path) -> int:
    return max(checkpoint.steps(run / "checkpoints"), default=0)


def wait_until(condition: Callable[[], bool], process: TrainingProcess) -> bool:
    """Wait for the condition; return False if the process ended first."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if process.exit_status() is not None:
            return False
        assert time.monotonic() < deadline, "the process neither makes progress nor ends"
        time.sleep(POLL_SECONDS)
    return True


def holds_lock(run: Path, process: TrainingProcess) -> bool:
    """Return whether the lock file names the process."""
    lock = run / "lock"
    return lock.exists() and lock.read_text().split(" ")[0] == str(process.pid)


def wait_while_training(seconds: float, run: Path, process: TrainingProcess) -> None:
    """Wait that long, but for at most four saves on a fast machine, so that steps remain for the next kills."""
    deadline, last_step = time.monotonic() + seconds, newest_step(run) + 20
    wait_until(lambda: time.monotonic() >= deadline or newest_step(run) >= last_step, process)


def kill_once(launch: Launcher, arguments: list[str], run: Path, at_save: bool, rng: random.Random) -> Kill | None:
    """Start the run, wait for the moment and kill it; None if it ended first. Older unfinished saves do not count."""
    # Start.
    old = set(unfinished_saves(run))
    process = launch(arguments, run.with_suffix(".err"))
    if not wait_until(lambda: holds_lock(run, process), process):
        return None
    # Wait for the moment.
    if at_save:
        for _ in range(rng.randint(1, 4)):  # then hit the next save
            before = newest_step(run)
            wait_until(lambda before=before: newest_step(run) > before, process)
        wait_until(lambda: not old.issuperset(unfinished_saves(run)), process)
        time.sleep(rng.uniform(0, 0.006))
    elif rng.random() < 0.5:  # while the run is opened and the first steps are taken
        wait_while_training(rng.uniform(0, 2.0), run, process)
    else:  # after at least one save
        before = newest_step(run)
        wait_until(lambda: newest_step(run) > before, process)
        wait_while_training(rng.uniform(0, 0.4), run, process)
    # Kill.
    if process.exit_status() is not None:
        return None
    process.kill()
    return Kill(at_save, newest_step(run), tuple(name for name in unfinished_saves(run) if name not in old))


def kill_repeatedly(launch: Launcher, arguments: list[str], run: Path, count: int, seed: int) -> list[Kill]:
    """Kill the run `count` times, then let it finish."""
    rng, kills = random.Random(seed), []
    for number in range(count):
        kill = kill_once(launch, arguments, run, number % 2 == 0, rng)
        if kill is None:
            break
        kills.append(kill)
    run_to_end(launch, arguments, run)
    return kills


def run_to_end(launch: Launcher, arguments: list[str], run: Path) -> Outcome:
    """Run to the end and return the outcome."""
    process = launch(arguments, run.with_suffix(".err"))
    wait_until(lambda: process.exit_status() is not None, process)
    assert process.exit_status() == 0, run.with_suffix(".err").read_text()[-2000:]
    return read_outcome(run)


def format_table(kills: list[Kill]) -> str:
    rows = [f"{'kill':>4}  {'aimed at':10}  {'newest checkpoint':>17}  unfinished save"]
    rows += [
        f"{number:>4}  {'a save' if kill.at_save else 'any moment':10}  {kill.newest_step:>17}  "
        f"{', '.join(kill.unfinished) or '–'}"
        for number, kill in enumerate(kills, start=1)
    ]
    inside = sum(kill.inside_save for kill in kills)
    return "\n".join((*rows, f"{len(kills)} kills, {inside} of them inside a save"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        steps = STEPS_PER_KILL * options.kills
        runs = {name: Path(directory) / name for name in ("uninterrupted", "killed", "control")}
        arguments = {name: train_arguments(steps, run) for name, run in runs.items()}
        # Compare a run with kills to an uninterrupted one.
        expected = run_to_end(CommandProcess, arguments["uninterrupted"], runs["uninterrupted"])
        kills = kill_repeatedly(CommandProcess, arguments["killed"], runs["killed"], options.kills, options.seed)
        print(format_table(kills))
        same = read_outcome(runs["killed"]) == expected
        print(f"{steps} steps, final state {expected.state[:16]}…, {len(expected.metrics)} lines of metrics: ", end="")
        print("the same as without kills" if same else "NOT the same as without kills")
        # The negative control must end in another state.
        kill_repeatedly(start_without_average, arguments["control"], runs["control"], 2, options.seed)
        differs = read_outcome(runs["control"]).state != expected.state
        print(f"control, 2 kills, average not restored: {'another state' if differs else 'THE SAME STATE'}")
    return 0 if same and differs and len(kills) == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
