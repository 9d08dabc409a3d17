"""Jobs of a grid, run by submitit on this machine: submitted once, checked, and resumed."""

import signal
import time

import pytest
from oracles.small_grid import fake_train_command, log_lines, logged_steps, small_plan, small_task

from truedrift.grids import Job, SlurmOptions, SlurmTask, is_done, slurm, submit
from truedrift.training import lock_run

submitit = pytest.importorskip("submitit", reason="no submitit: pip install 'truedrift[slurm]'")
TASKS = (small_task(0), small_task(1))
OPTIONS = SlurmOptions(time_minutes=5, gpus=0, cpus=1, memory_gb=1)
LIMIT_SECONDS = 120
NOBODY = 2**22 + 1  # beyond the largest id of a process


def submitted(runs, *tasks):
    return submit(small_plan(*tasks), runs, OPTIONS, "cpu", cluster="local")


def wait_for(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_job_is_submitted_once(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "train_command", fake_train_command())
    (task, _) = TASKS
    first = submitted(tmp_path, task)
    assert [job.task for job in first.submitted] == [task]
    assert (first.waiting, first.ended_early) == ((), ())
    at_once = submitted(tmp_path, task)  # while it starts
    assert [job.id for job in at_once.waiting] == [first.submitted[0].id]
    assert at_once.submitted == ()
    wait_for(first.submitted[0].is_over)
    assert is_done(task, tmp_path)
    assert logged_steps(task, tmp_path) == [1, 2, 3, 4, 5, 6]
    after = submitted(tmp_path, task)
    assert (after.waiting, after.submitted, after.ended_early) == ((), (), ())


def test_job_that_ended_early_is_reported_and_submitted_again(tmp_path, monkeypatch):
    (task, other) = TASKS
    (tmp_path / f"{task.name}.job").write_text(
        f'{{"job": "{2**22 + 1}", "cluster": "local"}}\n'
    )  # no process has that id
    (tmp_path / f"{task.name}.log").write_text("step 3\ntruedrift: error: no room; allowed is some; make it\n")
    monkeypatch.setattr(slurm, "_submit_task", lambda executor, task, runs, device: Job(task, "7", "local", runs))
    found = submitted(tmp_path, task, other)
    assert [job.task for job in found.submitted] == [task, other]
    ((job, why),) = found.ended_early
    assert (job.task, job.id) == (task, str(NOBODY))
    assert why == "truedrift: error: no room; allowed is some; make it"


def test_run_saves_before_the_time_limit_and_is_requeued(tmp_path):
    """As on a node: the signal also reaches the run, which must survive it."""
    task = TASKS[0]
    job = SlurmTask(fake_train_command(pause=0.3)(task, tmp_path, "cpu"), tmp_path / f"{task.name}.log")
    metrics, asked = tmp_path / task.name / "metrics.jsonl", []

    def looks(number, frame):
        if metrics.exists() and not asked:
            signal.setitimer(signal.ITIMER_REAL, 0)
            job._process.send_signal(signal.SIGUSR2)  # Slurm warns every process of the job
            asked.append(job.checkpoint())

    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, looks)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(RuntimeError, match=r"^status 75: saved$"):
            job()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before[signal.SIGALRM])
    assert signal.getsignal(signal.SIGUSR2) is before[signal.SIGUSR2]  # it is this process that must hear it
    begun = len(logged_steps(task, tmp_path))
    assert 1 <= begun < 6
    (again,) = asked
    again.function()
    assert logged_steps(task, tmp_path) == [1, 2, 3, 4, 5, 6]
    assert log_lines(task, tmp_path)[2].startswith(f"from {begun} ")


@pytest.mark.parametrize(
    ("state", "over"),
    [
        ("PENDING", False),
        ("RUNNING", False),
        ("UNKNOWN", False),
        ("REQUEUED", False),
        ("PREEMPTED", True),
        ("REVOKED", True),
        ("COMPLETED", True),
        ("FAILED", True),
        ("CANCELLED by 1000", True),
        ("TIMEOUT", True),
        ("OUT_OF_MEMORY", True),
    ],
)
def test_states_of_slurm(state, over, tmp_path, monkeypatch):
    monkeypatch.setattr(submitit.SlurmJob, "state", property(lambda job: state))
    assert Job(TASKS[0], "12", "slurm", tmp_path).is_over() is over


def test_waiting_job_is_not_submitted_again(tmp_path, monkeypatch):
    monkeypatch.setattr(submitit.SlurmJob, "state", property(lambda job: "UNKNOWN"))
    path = tmp_path / f"{TASKS[0].name}.job"
    path.write_text('{"job": "12", "cluster": "slurm"}\n')
    found = submit(small_plan(TASKS[0]), tmp_path, OPTIONS, "cpu")
    assert ([job.file for job in found.waiting], found.submitted) == ([path], ())


@pytest.mark.parametrize("content", ["", '{"job": "1', '{"job": "12"}\n', "12\n"])
def test_torn_job_file_is_ignored(content, tmp_path):
    (tmp_path / f"{TASKS[0].name}.job").write_text(content)
    assert slurm._read_submissions(TASKS[0], tmp_path) == []


def test_one_command_at_a_time_submits(tmp_path):
    with lock_run(tmp_path / "slurm"), pytest.raises(ValueError, match=r"slurm' is in use by process \d+"):
        submitted(tmp_path, TASKS[0])


def test_settings_reach_sbatch(tmp_path, monkeypatch):
    monkeypatch.setattr("submitit.slurm.slurm.shutil.which", lambda name: f"/usr/bin/{name}")
    options = SlurmOptions(
        partition="long", account="me", time_minutes=90, gpus=2, setup=("module load cuda",), extra=("constraint=a100",)
    )
    executor = slurm._executor(tmp_path, options, "slurm")
    text = executor._executor._make_submission_file_text("python", "uid")
    for line in ("partition=long", "account=me", "time=90", "gpus-per-node=2", "cpus-per-task=8", "mem=32GB"):
        assert f"#SBATCH --{line}\n" in text
    assert "#SBATCH --constraint=a100\n" in text
    assert "\nmodule load cuda\n" in text
    assert "#SBATCH --signal=USR2@90\n" in text


def test_errors_of_slurm(monkeypatch):
    with pytest.raises(ValueError, match=r"slurm.extra is 'a100'; must be name=value"):
        slurm._parse_extra(("a100",))
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    with pytest.raises(
        ValueError, match=r"sbatch is not available; .*; run this on a login node, or pass --executor local"
    ):
        slurm.require_slurm()
    monkeypatch.setattr(slurm, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"submitit is not installed; .*; run pip install 'truedrift\[slurm\]'"):
        slurm.require_slurm()
