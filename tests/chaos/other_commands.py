"""Kill `sample`, `evaluate`, `report`, `train-encoder` and `convert` at a file operation, or let the operation fail.

After a kill, a file with its final name is complete. After an error, the command ends with one line and status 2. The
same command then writes all files as if it had not been attacked, nothing is left over, and no process is alive.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import Before, find_problem, replace_everywhere
from .hostile_checkpoints import convert_command, write_published
from .hostile_text import skip_drawing
from .operations import ERRORS, AtOperation, read_operations
from .runs import Bench
from .table import Attack

OLDER = 300
"""Seconds by which scratch directories are made older, so that they count as abandoned."""


@dataclass(frozen=True)
class Job:
    """A command that writes below a directory."""

    name: str
    arguments: Callable[[Bench, Path], Sequence[str]]
    before: tuple[Before, ...] = ()
    resumes: bool = False
    """Whether it continues its own files, which are then incomplete after a kill."""


def encoder_arguments(bench: Bench, out: Path) -> list[str]:
    settings = ("network.width=8", "network.blocks=[1,1]", "autoencoder.batch=6", "optimizer.warmup_steps=2")
    cadence = ("cadence.log_every=2", "cadence.checkpoint_every=3")
    flags = [flag for setting in (*settings, *cadence) for flag in ("--set", setting)]
    return ["train-encoder", "digits", "--steps", "6", *flags, "--device", "cpu", "--out", str(out)]


def convert_arguments(bench: Bench, out: Path) -> list[str]:
    out.mkdir(exist_ok=True)
    write_published(out.parent)
    return [*convert_command(out.parent / "a.pt")[:-1], str(out / "converted")]


JOBS = (
    Job(
        "sample",
        lambda bench, out: ["sample", str(bench.complete), "--form", "npz", "--device", "cpu", "--out", f"{out}/x.npz"],
    ),
    Job("report", lambda bench, out: ["report", str(bench.complete), "--out", str(out)], (skip_drawing,)),
    Job(
        "evaluate",
        lambda bench, out: ["evaluate", str(bench.complete), "--samples", "20", "--device", "cpu", "--out", str(out)],
    ),
    Job("train-encoder", encoder_arguments, resumes=True),
    Job("convert", convert_arguments),
)


@dataclass(frozen=True)
class AttackOn:
    """The command, and the place among its operations at which it is attacked: 0 the first, 1 the last."""

    job: Job
    place: float
    torn: bool = False
    error: int | None = None
    """The error of the operation; None: the process is killed."""

    def __str__(self) -> str:
        what = "" if self.error is None else f", {errno.errorcode[self.error]}"
        return f"{self.job.name} at {self.place:.3f} of its operations{', torn' if self.torn else ''}{what}"


class Jobs:
    """The commands that were not killed, with their operations and their files."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self._done = bench, dict[str, tuple[int, dict[str, bytes]]]()

    def expected(self, job: Job) -> tuple[int, dict[str, bytes]]:
        """Run the command without a kill, once; return the number of its operations and its files."""
        if job.name not in self._done:
            folder = self.bench.new_folder()
            out = folder / "out"
            arguments = job.arguments(self.bench, out)
            log = folder / "operations"
            ended = self.bench.run(arguments, folder, [*job.before, AtOperation(out, log)])
            assert ended.status == 0, ended.err
            self._done[job.name] = len(read_operations(log)), read_files(out)
        return self._done[job.name]

    def attempt(self, case: AttackOn, before: Sequence[Before]) -> str | None:
        """Attack the command, check its files, and run it again."""
        job = case.job
        count, expected = self.expected(job)
        folder = self.bench.new_folder()
        out = folder / "out"
        arguments = job.arguments(self.bench, out)
        number = 1 + int(case.place * (count - 1))
        at = AtOperation(out, folder / "operations", number, error=case.error, torn=case.torn)
        ended = self.bench.run(arguments, folder, [*before, *job.before, at])
        if case.error is None and ended.status != -9:
            return f"the kill at operation {number} of {count} did not happen: {ended.err}"
        problem = None if case.error is None else find_problem(ended)
        if problem is not None:
            return problem
        # Files with their final names are complete.
        left = read_files(out)
        for name, content in left.items():
            if not job.resumes and not name.startswith(".") and is_other(name, content, expected):
                return f"{name} is incomplete"
        if alive := find_processes(folder):
            return f"processes are still alive: {alive}"
        # The second run ends as the one that was not attacked.
        for path in out.rglob(".*"):
            os.utime(path, (time.time() - OLDER,) * 2)
        ended = self.bench.run(arguments, folder, [*before, *job.before])
        if job.name == "convert" and left.keys() >= expected.keys() and ended.status == 2:
            return None  # it was complete, and is not overwritten
        return find_problem(ended, allowed=(0,)) or find_difference(read_files(out), expected)


def find_difference(found: dict[str, bytes], expected: dict[str, bytes]) -> str | None:
    """Return how files differ from those of a command that was not attacked."""
    if found.keys() != expected.keys():
        return f"left over: {sorted(found.keys() - expected)}, missing: {sorted(expected.keys() - found)}"
    other = [name for name, content in found.items() if is_other(name, content, expected)]
    return f"{', '.join(other)} differs" if other else None


VARYING = ("lock", "history.jsonl", "manifest.json", "metrics.jsonl", "evaluations.jsonl")
"""Files that hold times."""


def read_files(out: Path) -> dict[str, bytes]:
    """Return the files below a directory by name, without those of TensorBoard."""
    files = (path for path in out.rglob("*") if path.is_file() and "tensorboard" not in path.parts)
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def is_other(name: str, content: bytes, expected: dict[str, bytes]) -> bool:
    """Return whether a file is not as expected; the page holds the time, so that only its end is compared."""
    if name.endswith(VARYING):
        return False
    if name.endswith(".html"):
        return not content.rstrip().endswith(b"</html>")
    return content != expected.get(name)


def find_processes(folder: Path, seconds: float = 5.0) -> list[str]:
    """Return processes that have the folder among their arguments; they may need a moment to end."""
    deadline = time.monotonic() + seconds
    while True:
        alive = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(folder).encode() in path.read_bytes():
                    alive.append(path.parent.name)
            except OSError:
                continue
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.05)


def write_in_place() -> None:
    """Break the writing: files get their final name before they are complete."""

    def write(path: Path, content: bytes, *, sync: bool = True) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            os.write(descriptor, part)
        os.close(descriptor)

    replace_everywhere("write_atomically", write)


def pass_errors() -> None:
    """Break the messages: errors of the system are bugs."""
    replace_everywhere("DISK_FULL", ())
    replace_everywhere("_is_user_path", lambda name: False)


def attacks(bench: Bench) -> list[Attack]:
    jobs = Jobs(bench)

    def draw_error(rng: random.Random, number: int) -> AttackOn:
        return AttackOn(JOBS[number % len(JOBS)], rng.random(), error=rng.choice(ERRORS))

    return [
        Attack(
            "kill -9 at a file operation of other commands",
            lambda rng, number: AttackOn(JOBS[number % len(JOBS)], rng.random(), rng.random() < 0.5),
            jobs.attempt,
            control="files written in place",
            broken=write_in_place,
            quick_tries=3,
            weight=2,
            control_draw=lambda rng, number: AttackOn(JOBS[0], (number + 1) / 6),
        ),
        Attack(
            "a file operation of other commands fails",
            draw_error,
            jobs.attempt,
            control="errors of the system not reported",
            broken=pass_errors,
            quick_tries=2,
            control_draw=lambda rng, number: AttackOn(JOBS[1], number / 6, error=errno.ENOSPC),
        ),
    ]
