"""Long logs, many runs and a large folder: time and memory of whole commands, each in a process of its own.

The lines of a short run of the digits are repeated with other step numbers, up to 10⁶ lines (0.9 GB). 126 copies of
that run differ in seed, n and estimator. The folder has 50,000 images of 48×40 pixels, half PNG and half JPEG; a run of
four steps is trained on it, and the same command is repeated when the run is complete.

Seconds are those of the clock, from the start of the process to its end, and of the processor, which depend less on
other work on the machine. The load average before the first command tells how much of it there was.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image

from benchmarks.results import Result
from truedrift.storage import to_hashed_json

LINES = (10_000, 100_000, 1_000_000)
RUNS, IMAGES = 126, 50_000
TITLE = f"Load: logs of up to {LINES[-1]:,} lines, {RUNS} runs, a folder of {IMAGES:,} images"
MOST_SECONDS = {100_000: 8.0, 1_000_000: 60.0}
SHORT_RUN = ("cadence.epochs=3", "cadence.log_every=10", "cadence.grid_every=100", "evaluation.samples=200")
SMALL_RUN = (
    'encoder={"kind": "pixels"}',
    "encoders=[]",
    "objective.pixels=false",
    "objective.locations=none",
    'generator={"kind": "mlp", "width": 32, "depth": 1}',
    "optimizer.schedule=constant",
    "batch.n=4",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=4",
    "cadence.grid_every=none",
)


@dataclass(frozen=True)
class Usage:
    """What a command used."""

    seconds: float
    processor_seconds: float
    megabytes: float

    def results(
        self, what: str, most_seconds: float | None = None, most_megabytes: float | None = None
    ) -> list[Result]:
        """Return one row per number."""
        return [
            Result(what, self.seconds, "s", None if most_seconds is None else "≤", most_seconds),
            Result(f"{what}, processor", self.processor_seconds, "s"),
            Result(f"{what}, memory", self.megabytes, "MB", None if most_megabytes is None else "≤", most_megabytes),
        ]


WATCH = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([status, time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""
"""A small process that starts a command. A new process inherits the largest memory of the one that starts it."""


def run_command(*words: object) -> Usage:
    """Run a command of truedrift in a new process."""
    python = (sys.executable, "-c", WATCH, sys.executable, "-m", "truedrift")
    output = subprocess.run([*python, *map(str, words)], stdout=subprocess.PIPE, check=True).stdout
    status, *numbers = json.loads(output)
    if status:
        raise RuntimeError(f"truedrift {words[0]} ended with status {status}")
    return Usage(*numbers)


def set_flags(settings: tuple[str, ...]) -> list[str]:
    """Return the options --set of these settings."""
    return [flag for setting in settings for flag in ("--set", setting)]


def write_long_log(source: Path, target: Path, count: int) -> None:
    """Write a log of so many lines: those of the source again and again, with other step numbers."""
    entries = [json.loads(line) for line in source.read_text().splitlines()]
    with target.open("w") as file:
        for step, entry in enumerate(islice(cycle(entries), count), start=1):
            seen = {"positives_seen": 100 * step} if "positives_seen" in entry else {}
            file.write(json.dumps(entry | {"step": step} | seen) + "\n")


def copy_run(source: Path, target: Path, seed: int = 0, n: int = 120, estimator: str = "abc") -> Path:
    """Copy what `truedrift report` reads of a run, with another seed, n and estimator."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("checkpoints", "tensorboard", "lock"))
    document = json.loads((target / "config.json").read_text())
    del document["sha256"]
    config = document["config"]
    config["seed"], config["batch"]["n"] = seed, n
    config["objective"] |= {"estimator_pos": estimator, "estimator_neg": estimator}
    (target / "config.json").write_bytes(to_hashed_json(document))
    return target


def write_images(root: Path, count: int) -> Path:
    """Write smooth random images of ten classes."""
    random = np.random.default_rng(0)
    for number in range(10):
        (root / f"class{number}").mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(random.integers(256, size=(5, 6, 3), dtype=np.uint8))
        suffix = ("png", "jpg")[number % 2]
        path = root / f"class{number % 10}" / f"{number:06}.{suffix}"
        coarse.resize((48, 40), Image.Resampling.BICUBIC).save(path)
    return root


def measure() -> list[Result]:
    """Measure all commands."""
    load = Result("load average before, other work included", os.getloadavg()[0], "processes")
    with scratch_directory() as directory:
        run = directory / "run"
        run_command("train", "digits", "--device", "cpu", "--out", run, *set_flags(SHORT_RUN))
        return [load, *_measure_logs(run, directory), *_measure_runs(run, directory), *_measure_folder(directory)]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make an empty directory with a cache of its own, which is removed at the end."""
    with tempfile.TemporaryDirectory() as name, patch.dict("os.environ", TRUEDRIFT_CACHE=f"{name}/cache"):
        yield Path(name)


def _measure_logs(run: Path, directory: Path) -> list[Result]:
    long, usages = copy_run(run, directory / "long"), {}
    for count in LINES:
        write_long_log(run / "metrics.jsonl", long / "metrics.jsonl", count)
        usages[count] = run_command("report", long, "--out", directory / "report")
    rows = [
        result
        for count, usage in usages.items()
        for result in usage.results(f"report on {count:,} lines", MOST_SECONDS.get(count), 500)
    ]
    shortest, *_, longest = usages.values()
    growth = Result(
        f"memory, {LINES[-1]:,} lines / {LINES[0]:,} lines", longest.megabytes / shortest.megabytes, "×", "≤", 1.3
    )
    return [*rows, growth]


def _measure_runs(run: Path, directory: Path) -> list[Result]:
    sizes, estimators = (8, 16, 32, 64, 96, 120), ("standard", "abc", "abc2")
    for number in range(RUNS):
        size, estimator = sizes[number // 7 % 6], estimators[number // 42]
        copy_run(run, directory / "runs" / f"run{number}", seed=number % 7, n=size, estimator=estimator)
    return run_command("report", directory / "runs", "--out", directory / "report").results(
        f"report on {RUNS} runs", 20
    )


def _measure_folder(directory: Path) -> list[Result]:
    images = write_images(directory / "images", IMAGES)
    words = (
        "train",
        "folder",
        "--data",
        images,
        "--device",
        "cpu",
        "--out",
        directory / "small",
        *set_flags(SMALL_RUN),
    )
    first, second = run_command(*words), run_command(*words)
    return [
        *first.results(f"train on {IMAGES:,} images, four steps"),
        *second.results("the same command when the run is complete"),
        Result("complete / first, processor", second.processor_seconds / first.processor_seconds, "×", "≤", 0.5),
    ]
