"""FIFOs, links, devices and directories in the places of the files of a run.

Every command ends in time with status 0 or 2, and writes to nothing outside the run directory.
"""

from __future__ import annotations

import os
import random
import shutil
from functools import partial
from pathlib import Path

from .hostile import NO_FILES, READ_OR_REFUSED, Hostile, place_link_elsewhere
from .hostile_text import skip_drawing
from .runs import Bench, train_arguments
from .table import Attack

NAMES = (
    *("lock", "history.jsonl", "metrics.jsonl", "config.json", "evaluations.jsonl", "report.html", "runs.csv"),
    *("checkpoints", "samples", "tensorboard", ".config.json.writing", "samples/step-00000012.png"),
    *("checkpoints/.writing-step-00000009", "checkpoints/step-00000009", "checkpoints/step-00000012"),
    *("checkpoints/step-00000006/manifest.json", "checkpoints/step-00000012/ema.safetensors"),
    *("metrics.damaged-1.jsonl", "samples/.step-00000012.png.writing", "incidents", "neighbors.png"),
)
THINGS = NO_FILES | {"link elsewhere": place_link_elsewhere}


def run_commands(run: Path) -> list[list[str]]:
    """Return the commands that use a run directory; all of them write into it."""
    return [
        train_arguments(run),
        ["sample", str(run), "--device", "cpu", "--count", "10"],
        ["report", str(run)],
        ["evaluate", str(run), "--samples", "20", "--device", "cpu"],
    ]


def write_place(folder: Path, bench: Bench, name: str, thing: str, command: int, complete: bool) -> list[str]:
    """Copy a run, and put the thing in the place of one of its files."""
    run = bench.copy(bench.complete if complete else bench.half, folder)
    path = run / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    THINGS[thing](path, folder)
    return run_commands(run)[command]


def draw_place(bench: Bench, rng: random.Random, number: int) -> Hostile:
    name, thing, command = rng.choice(NAMES), rng.choice(list(THINGS)), rng.randrange(4)
    return make_case(bench, name, thing, command, rng.random() < 0.5)


def make_case(bench: Bench, name: str, thing: str, command: int, complete: bool) -> Hostile:
    what = f"{thing} as {name}, command {command}, {'complete' if complete else 'half'} run"
    write = partial(write_place, bench=bench, name=name, thing=thing, command=command, complete=complete)
    return Hostile(what, write, READ_OR_REFUSED, before=(skip_drawing,))


def follow_links() -> None:
    """Break the writing: links are followed."""
    os.O_NOFOLLOW = 0


def attacks(bench: Bench) -> list[Attack]:
    return [
        Attack(
            "FIFOs, links and devices in a run directory",
            partial(draw_place, bench),
            lambda case, before: case.attempt(bench, before),
            control="links followed for writing",
            broken=follow_links,
            quick_tries=3,
            control_draw=lambda rng, number: make_case(bench, "history.jsonl", "link elsewhere", 0, False),
        )
    ]
