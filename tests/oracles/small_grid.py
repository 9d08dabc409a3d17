"""Small grids, and a fake training program that writes metrics without training."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from truedrift.grids import Plan, Task
from truedrift.recipes import PAPER_FIELD, recipe

SMALL = (
    "generator.width=16",
    "generator.depth=1",
    "batch.n=3",
    "cadence.epochs=2",
    "cadence.steps_per_epoch=3",
    "cadence.log_every=1",
    "cadence.checkpoint_every=2",
    "cadence.grid_every=none",
    "evaluation.extractor=none",
)
"""Six steps, each of them logged, none evaluated."""


def small_task(seed: int = 0, variant: str = "abc", *settings: str) -> Task:
    config = recipe("digits", given={"seed": seed}, tree=PAPER_FIELD, settings=(*SMALL, *settings))
    return Task(variant=variant, config=config)


def small_plan(*tasks: Task) -> Plan:
    return Plan(item="small", scale="smoke", data="digits", command="truedrift reproduce small", tasks=tasks)


FAKE_RUN = """
import json, os, signal, sys, time
run, steps, pause, fails = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "True"
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
os.makedirs(run, exist_ok=True)
path = os.path.join(run, "metrics.jsonl")
done = len(open(path).readlines()) if os.path.exists(path) else 0
print(f"from {done} with {os.environ.get('OMP_NUM_THREADS')} threads", flush=True)
if fails:
    sys.exit("truedrift: error: no such luck; allowed is some; find it")
for step in range(done + 1, steps + 1):
    with open(path, "a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
    if asked:
        print("saved", flush=True)
        sys.exit(75)
    time.sleep(pause)
"""
"""A program that writes one line per step, resumes where it stopped, and saves on SIGTERM."""


def fake_train_command(pause: float = 0.0, fails: Callable[[Task], bool] = lambda task: False):
    """Return a replacement of `train_command` that starts the fake program."""

    def command(task: Task, runs: Path, device: str) -> list[str]:
        runs.mkdir(parents=True, exist_ok=True)
        given = (runs / task.name, task.steps, pause, fails(task))
        return [sys.executable, "-c", FAKE_RUN, *map(str, given)]

    return command


def logged_steps(task: Task, runs: Path) -> list[int]:
    """Return the steps in its metrics.jsonl."""
    return [json.loads(line)["step"] for line in (runs / task.name / "metrics.jsonl").read_text().splitlines()]


def log_lines(task: Task, runs: Path) -> list[str]:
    return (runs / f"{task.name}.log").read_text().splitlines()
