"""Run a command of truedrift in a process of its own, with limits on time and memory.

The process is forked from a server that has imported everything: a tenth of a second instead of ten. Functions that
run in it before the command count its file operations, or break the program for a negative control.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

PRELOADED = [
    *("truedrift.cli.main", "truedrift.cli.train", "truedrift.cli.sample", "truedrift.cli.evaluate"),
    *("truedrift.cli.report", "truedrift.cli.diagnose", "truedrift.cli.bias", "truedrift.cli.convert"),
    *("truedrift.cli.train_encoder", "torch._dynamo", "sklearn.datasets", "tensorboard.compat.proto.event_pb2"),
    *("tensorboard.summary.writer.record_writer", "safetensors.torch", "PIL.Image", "matplotlib.pyplot"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg"),
    f"{__package__}.catalog",
]
MOST_SECONDS = 60.0
"""Time of one command, on a machine with other work. A command that takes longer hangs."""
MOST_MEGABYTES = 350.0
"""Growth of the memory of a command. The small runs of this harness need about 100."""
ADDRESS_SPACE = 4 << 30
"""Limit for what a process may map in addition to the server's memory, so that no attack takes the machine down."""

HARNESS_ERROR = "harness-error"
"""File with the error of a function of the harness, which must not be taken for one of the command."""

Before = Callable[[], None]
"""A function that runs in the new process before the command."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int | None
    """Exit status, −9 after SIGKILL; None if it was stopped because it took too long."""
    out: str
    err: str
    megabytes: float
    """Growth of the memory; 0 if it was killed."""

    @property
    def messages(self) -> list[str]:
        """The lines on stderr."""
        return self.err.rstrip("\n").split("\n") if self.err.strip() else []


class Process:
    """A command that was started.

    Args:
        arguments: The words after `truedrift`.
        folder: Where its output is written, to files that are made if they are missing.
        before: Called in the new process, in this order, before the command.
        environment: Added to the environment.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        before: Sequence[Before] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        own = (list(arguments), folder, tuple(before), dict(environment or {}))
        self._process, self._folder = context.Process(target=_run, args=own), folder
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def exit_status(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        """Kill the process and those that it started, and wait until all of them have ended: they may hold its lock."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()  # it may not have made its group yet
        self._process.join()
        deadline = time.monotonic() + MOST_SECONDS
        while _has_members(self.pid) and time.monotonic() < deadline:
            time.sleep(0.005)

    def wait(self, seconds: float = MOST_SECONDS) -> Ended:
        """Wait for the end."""
        self._process.join(seconds)
        status = self.exit_status()
        if status is None:
            self.kill()
        if (self._folder / HARNESS_ERROR).exists():
            raise RuntimeError((self._folder / HARNESS_ERROR).read_text())
        usage = self._folder / "usage"
        megabytes = float(usage.read_text()) if usage.exists() else 0.0
        return Ended(status, _read(self._folder / "out"), _read(self._folder / "err"), megabytes)


def _has_members(group: int) -> bool:
    """Return whether a process of the group runs; zombies do not."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, own_group = path.read_text(errors="replace").rpartition(") ")[2].split()[:3]
            if own_group == str(group) and state not in "ZX":
                return True
    return False


def run(
    arguments: Sequence[str],
    folder: Path,
    before: Sequence[Before] = (),
    environment: Mapping[str, str] | None = None,
    seconds: float = MOST_SECONDS,
) -> Ended:
    """Run a command to its end. The arguments are those of `Process`."""
    return Process(arguments, folder, before, environment).wait(seconds)


def _read(path: Path) -> str:
    return path.read_bytes().decode(errors="surrogateescape") if path.exists() else ""


def _run(arguments: list[str], folder: Path, before: tuple[Before, ...], environment: dict[str, str]) -> None:
    """Run the command in the new process."""
    os.setpgid(0, 0)
    for name, target in (("out", 1), ("err", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), target)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
    os.environ.update({"OMP_NUM_THREADS": "1"} | environment)
    torch.set_num_threads(1)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE, mapped + ADDRESS_SPACE))
    sys.argv, tempfile.tempdir = ["truedrift", *arguments], str(folder)
    from truedrift.cli import main

    try:
        for function in before:
            function()
    except BaseException:
        (folder / HARNESS_ERROR).write_text(traceback.format_exc())
        raise
    start = _peak_megabytes()
    status = main(arguments)
    (folder / "usage").write_text(f"{_peak_megabytes() - start}")
    sys.exit(status)


def _peak_megabytes() -> float:
    """Return the peak memory of this process, or of the largest that it started."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def replace_everywhere(name: str, value: object) -> None:
    """Replace a function or constant of truedrift in every module that has it, to break the program for a control."""
    modules = [
        module for path, module in sys.modules.items() if path.startswith("truedrift.") and hasattr(module, name)
    ]
    if not modules:
        raise AttributeError(f"no module of truedrift has {name}")
    for module in modules:
        setattr(module, name, value)


# ---- What is wrong with the end of a command ----


def find_problem(ended: Ended, allowed: Sequence[int] = (0, 2)) -> str | None:
    """Return what is wrong with the end of a command: time, status, lines, characters, memory; None if nothing is.

    Args:
        ended: The end of the command.
        allowed: The allowed exit statuses.
    """
    return next(_problems(ended, allowed), None)


def _problems(ended: Ended, allowed: Sequence[int]) -> Iterator[str]:
    last = ended.messages[-1][:300] if ended.messages else "no message"
    if ended.status is None:
        yield f"no end after {MOST_SECONDS:g} seconds"
    if "Traceback" in ended.err or "this is a bug" in ended.err:
        yield f"a traceback: {last}"
    if ended.status not in allowed:
        yield f"status {ended.status}: {last}"
    if ended.status == 2 and sum(": error: " in line for line in ended.messages) != 1:
        yield f"status 2 with {len(ended.messages)} lines: {last}"
    if any(not line.startswith("truedrift: ") for line in ended.messages):
        yield f"a line of another program: {ended.err[:300]}"
    if ended.megabytes > MOST_MEGABYTES:
        yield f"{ended.megabytes:.0f} MB of memory"
    for character in ended.out + ended.err:
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):
            yield f"the character {character!r} on the terminal"


def wait_until(condition: Callable[[], object], *processes: Process, seconds: float = MOST_SECONDS) -> bool:
    """Wait for the condition; return False if a process ended first."""
    deadline = time.monotonic() + seconds
    while not condition():
        if any(process.exit_status() is not None for process in processes):
            return bool(condition())
        assert time.monotonic() < deadline, "the process neither makes progress nor ends"
        time.sleep(0.001)
    return True
