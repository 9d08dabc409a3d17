"""Slurm through submitit: every missing run becomes a job; the same command checks them, then collects the results.

RUNS/<recipe>-<id>.job records the job of a run, so that a waiting or running job is not submitted again; only one
command at a time submits. Before the time limit of a job, Slurm sends SIGUSR2: the run saves its state, and the job is
requeued.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.grids.plan import Plan, Task, is_done, last_log_line, sidecar_path, train_command
from truedrift.grids.slurm_options import SlurmOptions
from truedrift.storage import make_directory, read_json_lines, write_atomically
from truedrift.training.run_directory import lock_run

FOLDER = "slurm"
"""Folder for the files of submitit, below the directory of runs."""
OVER = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"),
    *("PREEMPTED", "REVOKED"),
}
"""Final states of jobs."""


@dataclass(frozen=True)
class Job:
    """The job of a run: its id, and the cluster of submitit that runs it."""

    task: Task
    id: str
    cluster: str
    runs: Path

    @property
    def file(self) -> Path:
        """File that records the job; without it the run is submitted again."""
        return sidecar_path(self.task, self.runs, "job")

    def is_over(self) -> bool:
        """Return whether it neither waits nor runs. A job that Slurm does not know counts as waiting."""
        import submitit  # noqa: PLC0415  an extra

        if self.cluster == "slurm":
            state = submitit.SlurmJob(self.runs / FOLDER, self.id).state
            return state.split()[0].removesuffix("+") in OVER
        job: Any = submitit.LocalJob(self.runs / FOLDER, self.id)
        return job.paths.result_pickle.exists() or not _is_alive(int(self.id))

    def why(self) -> str:
        """Return the reason why the job ended."""
        return last_log_line(sidecar_path(self.task, self.runs, "log"))


@dataclass(frozen=True)
class Submission:
    """Jobs of a plan: waiting, newly submitted, and ended early since the last command."""

    waiting: tuple[Job, ...]
    submitted: tuple[Job, ...]
    ended_early: tuple[tuple[Job, str], ...]


class SlurmTask:
    """The run on its node; submitit calls `checkpoint` shortly before the time limit.

    Args:
        arguments: The command that starts or resumes the run.
        log: The file that its output is appended to.
    """

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.arguments, self.log = arguments, log
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        """Run until done; a nonzero exit status is an error of the job."""
        with self.log.open("ab") as log, _ignore_sigusr2():
            self._process = subprocess.Popen(self.arguments, stdout=log, stderr=subprocess.STDOUT)
        status = self._process.wait()
        if status != 0:
            raise RuntimeError(f"status {status}: {last_log_line(self.log)}")

    def checkpoint(self) -> Any:
        """Stop the run after it has saved its state, and requeue the same command."""
        import submitit  # noqa: PLC0415

        if self._process is not None:
            self._process.terminate()
            with suppress(ChildProcessError):
                # `__call__` is inside wait(), whose lock this handler would wait for without end.
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        return submitit.helpers.DelayedSubmission(SlurmTask(self.arguments, self.log))


@contextmanager
def _ignore_sigusr2() -> Iterator[None]:
    """Let processes started inside ignore SIGUSR2: Slurm sends it to all processes of a job, and it would end a run."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, before)


def require_slurm() -> None:
    """Require that submitit is installed and that the Slurm commands are available."""
    if find_spec("submitit") is None:
        fix = "run pip install 'truedrift[slurm]'"
        raise UserError("submitit is not installed", "the executor slurm needs the slurm extra", fix)
    if shutil.which("sbatch") is None:
        fix = "run this on a login node, or pass --executor local"
        raise UserError("the command sbatch is not available", "must run on a machine of a Slurm cluster", fix)


def submit(plan: Plan, runs: Path, options: SlurmOptions, device: str, cluster: str = "slurm") -> Submission:
    """Submit every run that is not done and has no waiting or running job.

    Args:
        plan: The runs.
        runs: The directory of the run directories, also for the files of submitit.
        options: Resources requested for every run.
        device: The device of every run: "auto", "cpu", "cuda" or "mps".
        cluster: "slurm", or "local" to run the same jobs on this machine.

    Returns:
        The jobs that wait or run, those submitted now, and those that ended early, with the last line of their logs.

    Raises:
        UserError: If an extra setting is not name=value, or another command is submitting to the same directory.
    """
    runs = runs.absolute()
    make_directory(runs / FOLDER)
    with lock_run(runs / FOLDER):
        remaining = [task for task in plan.tasks if not is_done(task, runs)]
        known = [job for task in remaining for job in _read_submissions(task, runs)]
        waiting = tuple(job for job in known if not job.is_over())
        ended = tuple((job, job.why()) for job in known if job not in waiting)
        free = [task for task in remaining if task not in [job.task for job in waiting]]
        executor = _executor(runs, options, cluster) if free else None
        return Submission(waiting, tuple(_submit_task(executor, task, runs, device) for task in free), ended)


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
        slurm_additional_parameters=_parse_extra(options.extra),
        **{name: value for name, value in named.items() if value is not None},
    )
    return executor


def _parse_extra(settings: tuple[str, ...]) -> dict[str, str]:
    for setting in settings:
        if not setting.partition("=")[0] or "=" not in setting:
            fix = "pass for example constraint=a100"
            raise UserError(f"is {setting!r}", "must be name=value", fix, field="slurm.extra")
    return dict(setting.split("=", 1) for setting in settings)


def _submit_task(executor: Any, task: Task, runs: Path, device: str) -> Job:
    """Submit the run, and record its job before the next one is submitted."""
    arguments = train_command(task, runs, device)
    job = executor.submit(SlurmTask(arguments, sidecar_path(task, runs, "log")))
    submitted = Job(task, str(job.job_id), executor.cluster, runs)
    write_atomically(submitted.file, f"{json.dumps({'job': submitted.id, 'cluster': submitted.cluster})}\n".encode())
    return submitted


def _read_submissions(task: Task, runs: Path) -> list[Job]:
    """Return the last job of the run, if its file exists and is readable."""
    lines = read_json_lines(sidecar_path(task, runs, "job"))[-1:]
    return [Job(task, tree["job"], tree["cluster"], runs) for tree in lines if {"job", "cluster"} <= set(tree)]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
