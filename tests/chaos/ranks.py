"""Several processes of one run that disagree, end or fall silent.

Processes that differ must all end with status 2 and a line that names what differs and where. A process that has lost
another one must end with status 1 and one line.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from PIL import Image

from truedrift.training import ranks as ranks_module

from .commands import Before, Process, find_problem, replace_everywhere, wait_until
from .runs import Bench, train_arguments
from .table import Attack


@dataclass(frozen=True)
class Disagreement:
    """What rank 1 has and rank 0 has not, and how the message names it."""

    what: str
    arguments: tuple[str, ...]
    named: str


DISAGREEMENTS = (
    Disagreement("learning rate", ("--set", "optimizer.learning_rate=0.5"), "optimizer.learning_rate is "),
    Disagreement("folder of images", (), "data.sha256 is "),
    Disagreement("seed", ("--seed", "7"), "seed is 0 on rank 0 and 7 on rank 1"),
    Disagreement("version", (), 'truedrift is "'),
    Disagreement("length", ("--set", "cadence.epochs=5"), "cadence.epochs is 1 on rank 0 and 5 on rank 1"),
    Disagreement("estimator", ("--estimator", "standard"), "objective.estimator_pos is "),
    Disagreement("classes", ("--classes", "3", "7"), "data.classes is "),
)


def rank_environment(bench: Bench, rank: int, port: int) -> dict[str, str]:
    """Return the environment that torchrun gives to a process."""
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    return bench.environment | own | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start_ranks(
    bench: Bench, folder: Path, arguments: Sequence[Sequence[str]], before: Sequence[Sequence[Before]]
) -> list[Process]:
    """Start one process per list of arguments."""
    port = find_port()
    return [
        Process(own, folder / f"rank-{rank}", functions, rank_environment(bench, rank, port))
        for rank, (own, functions) in enumerate(zip(arguments, before, strict=True))
    ]


# ---- Disagreement ----


def change_version() -> None:
    """Let this process have another version."""
    ranks_module.__version__ = "0.0.9"


def write_images(folder: Path, shade: int) -> Path:
    """Write twelve images of two classes; their first pixel has this shade."""
    for number in range(12):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = torch.randint(0, 256, (8, 8), generator=torch.Generator().manual_seed(number), dtype=torch.uint8)
        values[0, 0] = shade
        Image.fromarray(values.numpy()).save(path)
    return folder


SMALL_FOLDER = (
    *('encoder={"kind": "pixels"}', "encoders=[]", 'generator={"kind": "mlp", "width": 16, "depth": 1}'),
    *("data.image_size=8", "objective.share_normalization=group", "objective.locations=none", "batch.n=4"),
    *("batch.generated=4", "batch.labels=none", "batch.unconditional=0", "condition.strength_high=1"),
    *("optimizer.schedule=constant", "cadence.epochs=1", "cadence.steps_per_epoch=4", "evaluation.strength=none"),
)


def folder_arguments(out: Path, images: Path) -> list[str]:
    """Return the arguments of a small run on a folder of images."""
    flags = [flag for setting in SMALL_FOLDER for flag in ("--set", setting)]
    return ["train", "folder", "--data", str(images), *flags, "--device", "cpu", "--out", str(out)]


def disagree(bench: Bench, case: Disagreement, before: Sequence[Before]) -> str | None:
    """Start two processes that disagree."""
    folder = bench.new_folder()
    out = folder / "run"
    arguments = [train_arguments(out), [*train_arguments(out), *case.arguments]]
    if case.what == "folder of images":
        arguments = [folder_arguments(out, write_images(folder / str(shade), shade)) for shade in (0, 1)]
    own = [*before, change_version] if case.what == "version" else before
    processes = start_ranks(bench, folder, arguments, (before, own))
    for rank, process in enumerate(processes):
        ended = process.wait()
        if ended.status != 2:
            [each.kill() for each in processes]
            return f"rank {rank} ended with status {ended.status}"
        problem = find_problem(ended)
        if problem is not None:
            return f"rank {rank}: {problem}"
        if f"rank {rank}: error: the processes of this run differ: " not in ended.err or case.named not in ended.err:
            return f"rank {rank} does not name {case.named}: {ended.err}"
    return "the run was started" if (out / "checkpoints").exists() else None


def compare_nothing() -> None:
    """Break the start: the processes are not compared."""
    replace_everywhere("require_equal_ranks", lambda run, samples: None)


# ---- Lost processes ----


def lose_rank(bench: Bench, number: int, before: Sequence[Before]) -> str | None:
    """Kill or stop rank 1 after the first save; rank 0 must end with one line, and the run must resume."""
    folder = bench.new_folder()
    out = folder / "run"
    is_killed = number % 2 == 0
    endless = train_arguments(out, "--timeout", "10" if is_killed else "0.03", **{"cadence.epochs": 100_000})
    processes = start_ranks(bench, folder, [endless, endless], [before, before])
    try:
        if not wait_until((out / "checkpoints" / "step-00000003" / "manifest.json").exists, *processes):
            return f"no save: {processes[0].wait().err}"
        os.kill(processes[1].pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
        ended = processes[0].wait()
    finally:
        for process in processes:
            process.kill()
    problem = find_problem(ended, allowed=(1,))
    if problem is not None:
        return problem
    lost = "rank 1 ended" if is_killed else "another process has not answered for 0.03 minutes"
    expected = f"truedrift: rank 0: {lost}; checkpoints are intact; run the same command to resume"
    return None if ended.messages[-1] == expected else f"the message is {ended.messages[-1]}"


def raise_connection_errors() -> None:
    """Break the message: errors of the connection are not recognized."""
    replace_everywhere("_connection_problem", lambda message, minutes: None)


# ---- torchrun ----

WORKER = """
import os, sys
from truedrift.cli import main
sys.exit(main([*sys.argv[1:], "--seed", os.environ["RANK"]]))
"""
"""A process whose seed is its rank."""


def use_torchrun(bench: Bench, number: int, before: Sequence[Before]) -> str | None:
    """Start two processes with different seeds by torchrun, or in the control two that do not mind."""
    folder = bench.new_folder()
    worker = folder / "worker.py"
    worker.write_text("" if before else WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", str(find_port()), str(worker), *train_arguments(folder / "run")]
    environment = os.environ | bench.environment | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("truedrift: rank ")]
    if ended.returncode != 1:
        return f"torchrun ended with status {ended.returncode}"
    if len(lines) != 2 or not all("seed is 0 on rank 0 and 1 on rank 1" in line for line in lines):
        return f"not one line per process: {ended.stderr}"
    return None


def attacks(bench: Bench) -> list[Attack]:
    return [
        Attack(
            "processes that disagree",
            lambda rng, number: DISAGREEMENTS[number % len(DISAGREEMENTS)],
            partial(disagree, bench),
            control="processes not compared",
            broken=compare_nothing,
            quick_tries=4,
            cases=2 * len(DISAGREEMENTS),
        ),
        Attack(
            "a process is killed or silent",
            lambda rng, number: number,
            partial(lose_rank, bench),
            control="errors of the connection not recognized",
            broken=raise_connection_errors,
            quick_tries=2,
        ),
        Attack(
            "torchrun with processes that disagree",
            lambda rng, number: number,
            partial(use_torchrun, bench),
            control="processes go on",
            broken=compare_nothing,
            cases=5,
        ),
    ]
