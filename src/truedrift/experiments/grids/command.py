"""A run of a grid as the project's own command, in a process of its own; the same command resumes it.

RUNS/<recipe>-<id>.json   its configuration          RUNS/<recipe>-<id>.log   what it said
RUNS/<recipe>-<id>/       its run directory          RUNS/<recipe>-<id>.job   of a cluster: its job
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from truedrift.experiments.grids.plan import Task
from truedrift.files import make_directory, write_atomically

LAST_BYTES = 4096


def run_of(task: Task, runs: Path) -> Path:
    """Its run directory."""
    return runs / task.name


def beside(task: Task, runs: Path, kind: str) -> Path:
    """The file of that kind beside its run directory."""
    return runs / f"{task.name}.{kind}"


def command(task: Task, runs: Path, device: str) -> list[str]:
    """What starts the run or goes on with it; its configuration is written."""
    make_directory(runs)
    config = beside(task, runs, "json")
    write_atomically(config, (json.dumps(task.config.tree(), indent=2) + "\n").encode())
    train = (sys.executable, "-m", "truedrift", "train", task.config.recipe)
    return [*train, "--config", str(config), "--out", str(run_of(task, runs)), "--device", device]


def last_line(log: Path) -> str:
    """The last line that a run said, which tells why it ended."""
    try:
        said = log.read_bytes()[-LAST_BYTES:].decode(errors="replace").split("\n")
    except OSError:
        return "it said nothing"
    return next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
