"""Slurm through submitit: every run that is missing becomes a job; the same command asks after them, then gathers.

The job of a run is remembered in RUNS/<recipe>-<id>.job, so that what waits or runs is not submitted again; of two
commands one at a time submits. Before the time of a job is over, Slurm tells it (SIGUSR2): the run saves where it is,
and the job is put into the queue again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.grids.plan import Plan, Task, last_log_line, run_path, sidecar_path, train_command
from truedrift.grids.status import is_done
from truedrift.storage import make_directory, read_json_lines, write_atomically
from truedrift.training.run_directory import RunLock

FOLDER = "slurm"
"""Below the directory of runs: submitit's own files."""
OVER = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "NODE_FAIL",
    "BOOT_FAIL",
    "DEADLINE",
    "PREEMPTED",
    "REVOKED",
)
"""States of jobs that will not run again by themselves."""
UNKNOWN = "UNKNOWN"
"""Of a job that sacct does not know: not yet, or no longer."""
FORGOTTEN_SECONDS = 24 * 3600
"""After so long a job that is not known is no longer known."""


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What is asked of Slurm for every run."""

    partition: str | None = None
    """Of the cluster; none: its default."""
    account: str | None = None
    """To whom the time is billed."""
    time_minutes: int = 24 * 60
    """Of a job; a run that needs longer goes on in the next one."""
    gpus: int = 1
    cpus: int = 8
    memory_gb: int = 32
    setup: tuple[str, ...] = ()
    """Lines of the shell before a run starts, such as "module load cuda"."""
    extra: tuple[str, ...] = ()
    """Further settings of sbatch as name=value, such as constraint=a100."""


@dataclass(frozen=True)
class Job:
    """A run's job: the id, and which of submitit's clusters has it."""

    task: Task
    id: str
    cluster: str
    runs: Path

    @property
    def file(self) -> Path:
        """Where it is remembered; without that file the run is submitted again."""
        return sidecar_path(self.task, self.runs, "job")

    def is_over(self) -> bool:
        """Whether it neither waits nor runs; what is not known yet is taken for waiting, for a day."""
        import submitit  # noqa: PLC0415  an extra

        if self.cluster == "slurm":
            said = self._state()
            return said in OVER or (said == UNKNOWN and self._is_old())
        job: Any = submitit.LocalJob(self.runs / FOLDER, self.id)
        return job.paths.result_pickle.exists() or not _is_alive(int(self.id))

    def why(self) -> str:
        """What is known of the end of a job that is over."""
        if self.cluster == "slurm" and self._state() == UNKNOWN:
            return f"Slurm does not know it, a day after {self.file} was written"
        return last_log_line(sidecar_path(self.task, self.runs, "log"))

    def _state(self) -> str:
        import submitit  # noqa: PLC0415

        return submitit.SlurmJob(self.runs / FOLDER, self.id).state.split()[0].removesuffix("+")

    def _is_old(self) -> bool:
        return self.file.exists() and time.time() - self.file.stat().st_mtime > FORGOTTEN_SECONDS


@dataclass(frozen=True)
class Submission:
    """What stands in the queue for a plan, and what ended before its end since the last time."""

    waiting: tuple[Job, ...]
    submitted: tuple[Job, ...]
    ended_early: tuple[tuple[Job, str], ...]


class SlurmTask:
    """The run on the node that Slurm chose; submitit calls `checkpoint` when the time is nearly over."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.arguments, self.log = arguments, log
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        """Until it is done; a status that is not 0 is an error of the job too."""
        with self.log.open("ab") as log, _ignore_sigusr2():
            self._process = subprocess.Popen(self.arguments, stdout=log, stderr=subprocess.STDOUT)
        status = self._process.wait()
        if status != 0:
            raise RuntimeError(f"status {status}: {last_log_line(self.log)}")

    def checkpoint(self) -> Any:
        """The run saves and ends, and the same command is to be called again."""
        import submitit  # noqa: PLC0415

        if self._process is not None:
            self._process.terminate()
            with suppress(ChildProcessError):
                # `__call__` is inside wait(), whose lock this handler would wait for without end.
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        return submitit.helpers.DelayedSubmission(SlurmTask(self.arguments, self.log))


@contextmanager
def _ignore_sigusr2() -> Iterator[None]:
    """For what is started inside: Slurm warns all processes of a job, which would end a run that does not know it."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, before)


def require_slurm() -> None:
    """submitit is installed, and Slurm's commands are here."""
    if find_spec("submitit") is None:
        came = "submitit is not installed"
        raise UserError(came, "the executor slurm needs the slurm extra", "run pip install 'truedrift[slurm]'")
    if shutil.which("sbatch") is None:
        came = "the command sbatch is not here"
        raise UserError(came, "allowed is a machine of a Slurm cluster", "run it on a login node, or --executor local")


def submit(plan: Plan, runs: Path, options: SlurmOptions, device: str, cluster: str = "slurm") -> Submission:
    """Submit what is neither done nor waits; `cluster` "local" runs the same jobs on this machine."""
    make_directory(runs / FOLDER)
    with RunLock(runs / FOLDER):
        left = [task for task in plan.tasks if not is_done(task, run_path(task, runs))]
        known = [job for task in left for job in _read_submissions(task, runs)]
        waiting = tuple(job for job in known if not job.is_over())
        ended = tuple((job, job.why()) for job in known if job not in waiting)
        free = [task for task in left if task not in [job.task for job in waiting]]
        executor = _executor(runs.absolute(), options, cluster) if free else None
        return Submission(waiting, tuple(_submitted(executor, task, runs.absolute(), device) for task in free), ended)


def _executor(runs: Path, options: SlurmOptions, cluster: str) -> Any:
    import submitit  # noqa: PLC0415

    executor = submitit.AutoExecutor(runs / FOLDER, cluster=cluster)
    named = {"slurm_partition": options.partition, "slurm_account": options.account}
    executor.update_parameters(
        name="truedrift",
        timeout_min=options.time_minutes,
        gpus_per_node=options.gpus,
        cpus_per_task=options.cpus,
        mem_gb=options.memory_gb,
        slurm_setup=list(options.setup),
        slurm_additional_parameters=_extra(options.extra),
        **{name: value for name, value in named.items() if value is not None},
    )
    return executor


def _extra(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise UserError(f"slurm.extra is {name!r}", "allowed is name=value", "write constraint=a100, say")
    return {name: value for name, _, value in pairs}


def _submitted(executor: Any, task: Task, runs: Path, device: str) -> Job:
    """The id is written as soon as there is one, before the next run is submitted."""
    arguments = train_command(task, runs, device)
    job = executor.submit(SlurmTask(arguments, sidecar_path(task, runs, "log")))
    found = Job(task, str(job.job_id), executor.cluster, runs)
    content = json.dumps({"job": found.id, "cluster": found.cluster}) + "\n"
    write_atomically(found.file, content.encode())
    return found


def _read_submissions(task: Task, runs: Path) -> list[Job]:
    """The last job of the run, if there was one and its file can be read."""
    found = read_json_lines(sidecar_path(task, runs, "job"))[-1:]
    return [
        Job(task, tree["job"], tree["cluster"], runs.absolute()) for tree in found if {"job", "cluster"} <= set(tree)
    ]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
