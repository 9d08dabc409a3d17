"""A pool of processes on this machine that run the tasks of a plan, each with its share of the cores or its GPU.

A run that fails does not stop the others, and a run that another command is working on is left alone. SIGTERM and
Ctrl-C ask every run to save and stop; a second Ctrl-C does not wait for them.
"""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from truedrift.distributed import resolve_device
from truedrift.errors import require_integer
from truedrift.grids.plan import Plan, Task, is_done, last_log_line, run_path, sidecar_path, steps_taken, train_command
from truedrift.progress import Progress
from truedrift.training.run_directory import is_locked
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
    """A signal asked to stop, and every run has saved its state.

    Args:
        signal: Name of the signal, such as "SIGTERM".
        status: Exit status for the command.
    """

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
        """Reason: the last line of the log."""
        return "another command is working on it" if self.busy else last_log_line(self.log)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool that runs several tasks at a time, each in its own process.

    Args:
        runs: The directory of the run directories.
        device: The device of every run: "auto", "cpu", "cuda" or "mps".
        workers: Number of runs at a time; None: one per GPU or core.
    """

    runs: Path
    device: str = "auto"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            require_integer("workers", self.workers, 1, 2)

    def run(self, plan: Plan, progress: Progress) -> list[UnfinishedRun]:
        """Run what is missing of the plan; return the runs that are still not done.

        Raises:
            Interrupted: A signal asked to stop.
        """
        remaining = [task for task in plan.tasks if not is_done(task, self.runs)]
        with StopSignal() as stop:
            statuses = self._run_all(plan, remaining, progress, stop)
        if stop.received is not None:
            raise Interrupted(stop.received, stop.exit_status or 1)
        return [self._unfinished(task, statuses.get(task)) for task in remaining if not is_done(task, self.runs)]

    def _is_free(self, task: Task) -> bool:
        """Return whether to start it: another command may have done it meanwhile, or be working on it."""
        return not is_done(task, self.runs) and not is_locked(run_path(task, self.runs))

    def _unfinished(self, task: Task, status: int | None) -> UnfinishedRun:
        busy = status is None or is_locked(run_path(task, self.runs))
        return UnfinishedRun(task, sidecar_path(task, self.runs, "log"), status, busy)

    def _run_all(self, plan: Plan, remaining: list[Task], progress: Progress, stop: StopSignal) -> dict[Task, int]:
        """Return the exit status of every run that was started; none is started after a stop signal."""
        environments = worker_environments(self.device, worker_count(self.device, self.workers, len(remaining)))
        waiting = filter(self._is_free, remaining)
        running: dict[int, tuple[Task, subprocess.Popen[bytes]]] = {}
        statuses: dict[Task, int] = {}
        stop_sent, last_read = False, time.monotonic()
        try:
            while True:
                # Start a run at every free place.
                for place, environment in enumerate(environments):
                    task = None if place in running or stop.received else next(waiting, None)
                    if task is not None:
                        running[place] = task, self._start(task, environment)
                if not running:
                    return statuses
                # Report the steps of all runs.
                time.sleep(LOOK_SECONDS)
                if time.monotonic() - last_read >= READ_SECONDS:
                    last_read = time.monotonic()
                    taken = sum(steps_taken(task, self.runs) for task in plan.tasks)
                    progress(plan.item, taken, sum(task.steps for task in plan.tasks))
                # Pass a stop signal on, once.
                if stop.received and not stop_sent:
                    stop_sent = True
                    for _, process in running.values():
                        process.terminate()
                # Collect the runs that have ended.
                for place, (task, process) in list(running.items()):
                    if process.poll() is not None:
                        statuses[task] = process.returncode
                        del running[place]
        finally:
            for _, process in running.values():
                process.kill()
                process.wait()

    def _start(self, task: Task, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the run in a new session: Ctrl-C reaches only this process, which passes it on once."""
        arguments = train_command(task, self.runs, self.device)
        with sidecar_path(task, self.runs, "log").open("ab") as log:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
