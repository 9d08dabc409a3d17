"""A pool of processes on this machine that run the tasks of a plan, each with its share of the cores or its GPU.

A run that fails does not stop the others, and a run that another command is working on is left alone. SIGTERM and
Ctrl-C ask every run to save and stop; a second Ctrl-C does not wait for them.
"""

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
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(device: str, asked: int | None, tasks: int) -> int:
    """Return the number of workers: `asked`, else one per GPU or core; never more than `tasks`."""
    kind = resolve_device(device).type
    own = len(_gpus()) if kind == "cuda" else 1 if kind == "mps" else core_count()
    return max(1, min(asked or own, tasks))


def threads_per_worker(workers: int) -> int:
    """Return the share of the cores per worker, or less if OMP_NUM_THREADS is smaller."""
    asked = os.environ.get(THREADS, "")
    share = max(1, core_count() // workers)
    return min(share, int(asked)) if asked.isdecimal() and int(asked) else share


def worker_environments(device: str, workers: int) -> list[Mapping[str, str]]:
    """Return the environment variables of each worker: its number of threads, and its GPU."""
    threads = {THREADS: str(threads_per_worker(workers))}
    if resolve_device(device).type != "cuda":
        return [threads] * workers
    gpus = _gpus()
    return [threads | {"CUDA_VISIBLE_DEVICES": gpus[k % len(gpus)]} for k in range(workers)]


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, as the driver numbers them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]


LOOK_SECONDS = 0.2
"""Time between two checks of the processes."""
READ_SECONDS = 2.0
"""Time between two reads of their files."""


class Interrupted(Exception):
    """A signal asked to stop, and every run has saved its state. `status` is the exit status."""

    def __init__(self, signal: str, status: int) -> None:
        super().__init__(signal)
        self.status = status


@dataclass(frozen=True)
class UnfinishedRun:
    """A run that ended early, or that another command is working on."""

    task: Task
    log: Path
    status: int | None
    """Exit status of its process; None: it was not started."""
    busy: bool
    """Whether another process is working on it."""

    @property
    def why(self) -> str:
        """Reason: the last line of the log, unless the process reported success."""
        if self.busy:
            return "another command is working on it"
        if self.status == 0:
            line = "line" if self.task.config.evaluation.extractor is None else "evaluation"
            return f"it ended without an error, but {METRICS} has no {line} at step {self.task.steps}"
        return last_log_line(self.log)


@dataclass(frozen=True)
class RunningProcess:
    """A run with its process."""

    task: Task
    process: subprocess.Popen[bytes]


Children = dict[int, RunningProcess]
"""Running processes by their position in the pool."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Runs `workers` tasks at a time; by default one per GPU or core."""

    runs: Path
    device: str = "auto"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            require_integer("workers", self.workers, 1, 2)

    def run(self, plan: Plan, progress: Progress) -> list[UnfinishedRun]:
        """Run what is missing of the plan; return the runs that are still not done."""
        remaining = [task for task in plan.tasks if not self._is_done(task)]
        report = _report_periodically(plan, self.runs, progress)
        with StopSignal() as interruption, _children() as children:
            status = dict(self._run_all(remaining, children, interruption, report))
        if interruption.received is not None:
            raise Interrupted(interruption.received, interruption.exit_status or 1)
        return [self._unfinished(task, status.get(task)) for task in remaining if not self._is_done(task)]

    def _is_done(self, task: Task) -> bool:
        return is_done(task, run_path(task, self.runs))

    def _is_free(self, task: Task) -> bool:
        """Return whether to start it: another command may have done it meanwhile, or be working on it."""
        return not self._is_done(task) and not is_locked(run_path(task, self.runs))

    def _unfinished(self, task: Task, status: int | None) -> UnfinishedRun:
        busy = status is None or is_locked(run_path(task, self.runs))
        return UnfinishedRun(task, sidecar_path(task, self.runs, "log"), status, busy)

    def _run_all(
        self, remaining: list[Task], children: Children, interruption: StopSignal, report: Iterator[None]
    ) -> Iterator[tuple[Task, int]]:
        """Yield every run with its exit status when its process ends; start no more after a stop signal."""
        waiting, stop_sent = filter(self._is_free, remaining), False
        environments = worker_environments(self.device, worker_count(self.device, self.workers, len(remaining)))
        while True:
            # Start a run at every free position.
            for place, environment in enumerate(environments):
                task = None if place in children or interruption.received else next(waiting, None)
                if task is not None:
                    children[place] = self._start(task, environment)
            # Pass a stop signal on, once.
            if interruption.received and not stop_sent:
                stop_sent = True
                _request_stop(children)
            if not children:
                return
            time.sleep(LOOK_SECONDS)
            next(report)
            yield from _finished(children)

    def _start(self, task: Task, environment: Mapping[str, str]) -> RunningProcess:
        """Start the run in a new session: Ctrl-C reaches only this process, which passes it on once."""
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
    """Provide the dictionary of processes; on exit, kill those that are still running."""
    children: Children = {}
    try:
        yield children
    finally:
        for child in children.values():
            child.process.kill()
            child.process.wait()


def _report_periodically(plan: Plan, runs: Path, progress: Progress) -> Iterator[None]:
    """Report the steps of all runs as progress, at most once per READ_SECONDS."""
    last_read = time.monotonic()
    while True:
        if time.monotonic() - last_read >= READ_SECONDS:
            last_read = time.monotonic()
            taken = sum(steps_taken(task, run_path(task, runs)) for task in plan.tasks)
            progress(plan.item, taken, plan.steps)
        yield
