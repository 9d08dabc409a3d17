"""Jobs of a grid, for real by submitit on this machine: submitted once, asked after, and gone on with."""

import signal
import time

import pytest
from oracles.little_grid import little_plan, little_task, pretended, said_by, steps_of

from truedrift.experiments.grids import slurm
from truedrift.experiments.grids.slurm import Job, OnNode, SlurmOptions, submit
from truedrift.experiments.grids.standing import is_done

submitit = pytest.importorskip("submitit")
TASKS = (little_task(0), little_task(1))
OPTIONS = SlurmOptions(time_minutes=5, gpus=0, cpus=1, memory_gb=1)
LIMIT_SECONDS = 120


def submitted(runs, *tasks):
    return submit(little_plan(*tasks), runs, OPTIONS, "cpu", cluster="local")


def wait_for(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_jobs_are_submitted_once_and_again_only_if_they_ended_early(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "command", pretended(fails=lambda task: task == TASKS[1]))
    first = submitted(tmp_path, *TASKS)
    assert [job.task for job in first.submitted] == list(TASKS)
    assert (first.waiting, first.ended_early) == ((), ())
    at_once = submitted(tmp_path, *TASKS)  # while they start
    assert [job.id for job in at_once.waiting] == [job.id for job in first.submitted]
    assert at_once.submitted == ()
    wait_for(lambda: all(job.is_over() for job in first.submitted))
    assert is_done(TASKS[0], tmp_path / TASKS[0].name)
    assert steps_of(TASKS[0], tmp_path) == [1, 2, 3, 4, 5, 6]
    monkeypatch.setattr(slurm, "_submitted", lambda executor, task, runs, device: Job(task, "7", "local", runs))
    again = submitted(tmp_path, *TASKS)
    assert [job.task for job in again.submitted] == [TASKS[1]]
    ((ended, why),) = again.ended_early
    assert ended.id == first.submitted[1].id
    assert why == "truedrift: error: no such luck; allowed is some; find it"


def test_before_its_time_is_over_a_run_saves_and_is_to_be_called_again(tmp_path):
    """As submitit does it on a node: the warning reaches the run too, which must not die of it."""
    task = TASKS[0]
    job = OnNode(pretended(pause=0.3)(task, tmp_path, "cpu"), tmp_path / f"{task.name}.log")
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
    begun = len(steps_of(task, tmp_path))
    assert 1 <= begun < 6
    (again,) = asked
    again.function()
    assert steps_of(task, tmp_path) == [1, 2, 3, 4, 5, 6]
    assert said_by(task, tmp_path)[2].startswith(f"from {begun} ")


@pytest.mark.parametrize(
    ("state", "over"),
    [
        ("PENDING", False),
        ("RUNNING", False),
        ("UNKNOWN", False),
        ("REQUEUED", False),
        ("PREEMPTED", False),
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


def test_mistakes_of_slurm(monkeypatch):
    with pytest.raises(ValueError, match=r"slurm.extra is 'a100'; allowed is name=value"):
        slurm._extra(("a100",))
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"sbatch is not here; .*; run it on a login node, or --executor local"):
        slurm.require_slurm()
    monkeypatch.setattr(slurm, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"submitit is not installed; .*; run pip install 'truedrift\[slurm\]'"):
        slurm.require_slurm()
