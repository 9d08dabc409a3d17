"""Workers of this machine: how many, and the cores and the GPU of each.

A pool of processes on this machine: as many runs at a time as there are workers.

A run that fails does not stop the others, and one that another command works on is left to it. SIGTERM and Ctrl-C ask
every run to save and end; a second Ctrl-C does not wait for them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from truedrift.errors import require_integer
from truedrift.grids.plan import Plan, Task, last_log_line, run_path, sidecar_path, train_command
from truedrift.grids.status import is_done, steps_taken
from truedrift.progress import Progress
from truedrift.training.run_directory import METRICS, is_locked
from truedrift.training.setup import resolve_device
from truedrift.training.signals import StopSignal

THREADS = "OMP_NUM_THREADS"


def core_count() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(device: str, asked: int | None, tasks: int) -> int:
    """As many as asked for, else one a GPU or core; never more than there is to do."""
    kind = resolve_device(device).type
    own = len(_gpus()) if kind == "cuda" else 1 if kind == "mps" else core_count()
    return max(1, min(asked or own, tasks))


def threads_per_worker(workers: int) -> int:
    """Its share of the cores, or fewer if the environment asks for that."""
    asked = os.environ.get(THREADS, "")
    share = max(1, core_count() // workers)
    return min(share, int(asked)) if asked.isdecimal() and int(asked) else share


def worker_environments(device: str, workers: int) -> list[Mapping[str, str]]:
    """What each worker finds in its environment: its share of the cores, and its GPU."""
    threads = {THREADS: str(threads_per_worker(workers))}
    if resolve_device(device).type != "cuda":
        return [threads] * workers
    gpus = _gpus()
    return [threads | {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} for place in range(workers)]


def _gpus() -> list[str]:
    """As the driver numbers them, of those that this process may see."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",") if seen else [str(number) for number in range(torch.cuda.device_count())]


LOOK_SECONDS = 0.2
"""Between two looks at the processes."""
READ_SECONDS = 2.0
"""Between two looks at their files."""


class Interrupted(Exception):
    """A signal asked to stop; every run has saved where it was. `status` is what to exit with."""

    def __init__(self, signal: str, status: int) -> None:
        super().__init__(signal)
        self.status = status


@dataclass(frozen=True)
class UnfinishedRun:
    """A run that ended before its end, or that another command works on."""

    task: Task
    log: Path
    status: int | None
    """Of its process; none: it was not started."""
    busy: bool
    """Another process has it."""

    @property
    def why(self) -> str:
        """The last line of its log, unless that tells of no failure."""
        if self.busy:
            return "another command is at it"
        if self.status == 0:
            line = "line" if self.task.config.evaluation.extractor is None else "evaluation"
            return f"it ended, but {METRICS} has no {line} at step {self.task.steps}"
        return last_log_line(self.log)


@dataclass(frozen=True)
class RunningProcess:
    """A run and its process."""

    task: Task
    process: subprocess.Popen[bytes]


Children = dict[int, RunningProcess]
"""Those that run, by their place in the pool."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """`workers` runs at a time; none named: one a GPU, or one a core."""

    runs: Path
    device: str = "auto"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            require_integer("workers", self.workers, 1, 2)

    def run(self, plan: Plan, progress: Progress) -> list[UnfinishedRun]:
        """Do what is missing of the plan; returns the runs that are not done then."""
        left = [task for task in plan.tasks if not self._is_done(task)]
        look = _report_periodically(plan, self.runs, progress)
        with StopSignal() as interruption, _children() as children:
            status = dict(self._ended(left, children, interruption, look))
        if interruption.asked is not None:
            raise Interrupted(interruption.asked, interruption.exit_status or 1)
        return [self._unfinished(task, status.get(task)) for task in left if not self._is_done(task)]

    def _is_done(self, task: Task) -> bool:
        return is_done(task, run_path(task, self.runs))

    def _is_free(self, task: Task) -> bool:
        """Whether it is to be started: another command may have done it meanwhile, or be at it."""
        return not self._is_done(task) and not is_locked(run_path(task, self.runs))

    def _unfinished(self, task: Task, status: int | None) -> UnfinishedRun:
        busy = status is None or is_locked(run_path(task, self.runs))
        return UnfinishedRun(task, sidecar_path(task, self.runs, "log"), status, busy)

    def _ended(
        self, left: list[Task], children: Children, interruption: StopSignal, look: Iterator[None]
    ) -> Iterator[tuple[Task, int]]:
        """Every run and its status when its process has ended; once a signal asked to stop none is started."""
        waiting, asked = filter(self._is_free, left), False
        environments = worker_environments(self.device, worker_count(self.device, self.workers, len(left)))
        while True:
            for place, environment in enumerate(environments):
                task = None if place in children or interruption.asked else next(waiting, None)
                if task is not None:
                    children[place] = self._started(task, environment)
            if interruption.asked and not asked:
                asked = True
                _request_stop(children)
            if not children:
                return
            time.sleep(LOOK_SECONDS)
            next(look)
            yield from _finished(children)

    def _started(self, task: Task, environment: Mapping[str, str]) -> RunningProcess:
        """In a session of its own: Ctrl-C reaches this process alone, which passes it on once."""
        arguments = train_command(task, self.runs, self.device)
        with sidecar_path(task, self.runs, "log").open("ab") as log:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        return RunningProcess(task, process)


def _finished(children: Children) -> Iterator[tuple[Task, int]]:
    for place, child in list(children.items()):
        status = child.process.poll()
        if status is not None:
            del children[place]
            yield child.task, status


def _request_stop(children: Children) -> None:
    for child in children.values():
        child.process.terminate()


@contextmanager
def _children() -> Iterator[Children]:
    """No process outlives this, whatever happens."""
    children: Children = {}
    try:
        yield children
    finally:
        for child in children.values():
            child.process.kill()
            child.process.wait()


def _report_periodically(plan: Plan, runs: Path, progress: Progress) -> Iterator[None]:
    """Progress over all runs in steps, if the last look is some time ago."""
    looked = time.monotonic()
    while True:
        if time.monotonic() - looked >= READ_SECONDS:
            looked = time.monotonic()
            taken = sum(steps_taken(task, run_path(task, runs)) for task in plan.tasks)
            progress(plan.item, taken, plan.steps)
        yield
