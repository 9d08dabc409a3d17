"""The pool runs what is missing, resumes what was stopped, and finishes the others if one run fails."""

import json
import os
import signal

import pytest
from oracles.small_grid import fake_train_command, log_lines, logged_steps, small_plan, small_task

from truedrift.grids import Interrupted, Pool, is_done, local
from truedrift.progress import no_progress
from truedrift.training import lock_run

TASKS = tuple(small_task(seed) for seed in range(3))
STEPS = list(range(1, 7))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(local, "READ_SECONDS", 0.0)
    monkeypatch.setattr(local, "train_command", fake_train_command())
    return monkeypatch


def test_every_run_is_done_once(quick, tmp_path):
    pool = Pool(runs=tmp_path, device="cpu", workers=2)
    calls = []
    assert pool.run(small_plan(*TASKS), lambda *progress: calls.append(progress)) == []
    assert [logged_steps(task, tmp_path) for task in TASKS] == [STEPS] * 3
    assert calls[-1][0] == "small"
    assert {total for _, _, total in calls} == {18}
    assert pool.run(small_plan(*TASKS), no_progress) == []
    assert [len(log_lines(task, tmp_path)) for task in TASKS] == [1, 1, 1]  # none was started again


def test_started_run_is_resumed_and_finished_run_is_left_alone(quick, tmp_path):
    for task, lines in zip(TASKS[:2], (6, 2), strict=True):
        (tmp_path / task.name).mkdir()
        text = "".join(f'{{"step": {step}}}\n' for step in range(1, lines + 1))
        (tmp_path / task.name / "metrics.jsonl").write_text(text)
    assert Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(*TASKS), no_progress) == []
    assert [logged_steps(task, tmp_path) for task in TASKS] == [STEPS] * 3
    assert not (tmp_path / f"{TASKS[0].name}.log").exists()
    assert log_lines(TASKS[1], tmp_path) == [f"from 2 with {local.threads_per_worker(1)} threads"]


def test_failed_run_is_reported_and_the_others_finish(quick, tmp_path):
    quick.setattr(local, "train_command", fake_train_command(fails=lambda task: task == TASKS[0]))
    (failed,) = Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(*TASKS), no_progress)
    assert (failed.task, failed.status, failed.busy) == (TASKS[0], 1, False)
    assert failed.why == "truedrift: error: no such luck; allowed is some; find it"
    assert [logged_steps(task, tmp_path) for task in TASKS[1:]] == [STEPS] * 2


@pytest.mark.skipif(os.name != "posix", reason="needs SIGTERM of POSIX")
def test_signal_lets_runs_save_and_the_next_command_resumes(quick, tmp_path):
    quick.setattr(local, "train_command", fake_train_command(pause=0.1))

    def ask(what, done, total):
        if done >= 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="SIGTERM") as stopped:
        Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(*TASKS), ask)
    assert stopped.value.status == 75
    assert log_lines(TASKS[0], tmp_path)[-1] == "saved"
    begun = len(logged_steps(TASKS[0], tmp_path))
    assert 2 <= begun < 6
    assert not (tmp_path / TASKS[1].name).exists()  # none is started after the signal
    assert Pool(runs=tmp_path, device="cpu", workers=2).run(small_plan(*TASKS), no_progress) == []
    assert [logged_steps(task, tmp_path) for task in TASKS] == [STEPS] * 3
    assert log_lines(TASKS[0], tmp_path)[2].startswith(f"from {begun} ")


def test_no_process_outlives_an_error(quick, tmp_path):
    quick.setattr(local, "train_command", fake_train_command(pause=60.0))
    started = []

    class Remembered(local.subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    quick.setattr(local.subprocess, "Popen", Remembered)

    def fail(what, done, total):
        raise RuntimeError("no more room to tell")

    with pytest.raises(RuntimeError, match="no more room to tell"):
        Pool(runs=tmp_path, device="cpu", workers=2).run(small_plan(*TASKS), fail)
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2


def test_a_real_run(tmp_path):
    """The real command in its own process."""
    task = small_task(0)
    assert Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(task), no_progress) == []
    assert logged_steps(task, tmp_path) == STEPS
    assert is_done(task, tmp_path)
    assert json.loads((tmp_path / task.name / "config.json").read_text())["config"]["batch"]["n"] == 3
    assert log_lines(task, tmp_path)[1] == "complete: 6 steps, 18 positives per class seen"


@pytest.mark.slow
def test_rejected_run_does_not_stop_the_other(tmp_path):
    good, bad = small_task(0), small_task(1, "abc", "batch.n=9999")
    (failed,) = Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(bad, good), no_progress)
    assert failed.task == bad
    assert "batch.n is 9999" in failed.why
    assert logged_steps(good, tmp_path) == STEPS


def test_workers_share_cores_and_gpus(monkeypatch):
    monkeypatch.setattr(local, "core_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert local.worker_count("cpu", None, 100) == 8
    assert local.worker_count("cpu", 3, 100) == 3
    assert local.worker_count("cpu", None, 2) == 2
    assert local.worker_environments("cpu", 3) == [{"OMP_NUM_THREADS": "2"}] * 3
    for asked, found in (("1", "1"), ("2", "2"), ("16", "2"), ("0", "2"), ("4,2", "2")):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert local.worker_environments("cpu", 3)[0] == {"OMP_NUM_THREADS": found}
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(local, "resolve_device", lambda name: local.torch.device("cuda", 0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert local.worker_count("auto", None, 100) == 2
    assert [place["CUDA_VISIBLE_DEVICES"] for place in local.worker_environments("auto", 3)] == ["2", "5", "2"]


def test_workers_are_at_least_one(tmp_path):
    with pytest.raises(ValueError, match="workers is 0; must be an integer ≥ 1"):
        Pool(runs=tmp_path, workers=0)


def test_run_without_its_evaluation_is_unfinished(quick, tmp_path):
    evaluated = small_task(0, "abc", "evaluation.extractor=digits")
    (failed,) = Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(evaluated), no_progress)
    assert (failed.status, failed.busy) == (0, False)


def test_locked_run_is_busy(quick, tmp_path):
    with lock_run(tmp_path / TASKS[1].name):
        (busy,) = Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(*TASKS), no_progress)
    assert (busy.task, busy.busy, busy.why) == (TASKS[1], True, "another command is working on it")
    assert not (tmp_path / f"{TASKS[1].name}.log").exists()
    assert [logged_steps(task, tmp_path) for task in (TASKS[0], TASKS[2])] == [STEPS] * 2
    assert Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(*TASKS), no_progress) == []


def test_run_locked_after_the_check_is_busy(quick, tmp_path):
    """The run was free when it was checked, and its process found it locked."""
    quick.setattr(local, "train_command", fake_train_command(fails=lambda task: True))
    quick.setattr(Pool, "_is_free", lambda pool, task: True)
    with lock_run(tmp_path / TASKS[0].name):
        (busy,) = Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(TASKS[0]), no_progress)
    assert (busy.status, busy.busy) == (1, True)


def test_run_finished_by_another_command_is_not_started(quick, tmp_path):
    def other(task, runs, device):
        run = runs / TASKS[1].name
        run.mkdir()
        (run / "metrics.jsonl").write_text('{"step": 6}\n')
        return fake_train_command()(task, runs, device)

    quick.setattr(local, "train_command", other)
    assert Pool(runs=tmp_path, device="cpu", workers=1).run(small_plan(*TASKS[:2]), no_progress) == []
    assert not (tmp_path / f"{TASKS[1].name}.log").exists()
