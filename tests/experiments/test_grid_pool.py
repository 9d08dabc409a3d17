"""A pool of runs: only what is missing is done, whatever stopped it before; a failure stops nothing else."""

import json
import os
import signal

import pytest
from oracles.little_grid import little_plan, little_task, pretended, said_by, steps_of

from truedrift.experiments.grids import local, workers
from truedrift.experiments.grids.local import Interrupted, Pool
from truedrift.experiments.grids.standing import is_done, seconds, steps_taken
from truedrift.progress import silent

TASKS = tuple(little_task(seed) for seed in range(3))
STEPS = list(range(1, 7))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(local, "READ_SECONDS", 0.0)
    monkeypatch.setattr(local, "command", pretended())
    return monkeypatch


def test_every_run_is_done_once(quick, tmp_path):
    pool = Pool(runs=tmp_path, device="cpu", workers=2)
    told = []
    assert pool.run(little_plan(*TASKS), lambda *progress: told.append(progress)) == []
    assert [steps_of(task, tmp_path) for task in TASKS] == [STEPS] * 3
    assert told[-1][0] == "little"
    assert {total for _, _, total in told} == {18}
    assert pool.run(little_plan(*TASKS), silent) == []
    assert [len(said_by(task, tmp_path)) for task in TASKS] == [1, 1, 1]  # none was started again


def test_a_run_that_was_begun_is_gone_on_with_and_one_that_is_done_is_left_alone(quick, tmp_path):
    for task, lines in zip(TASKS[:2], (6, 2), strict=True):
        (tmp_path / task.name).mkdir()
        text = "".join(f'{{"step": {step}}}\n' for step in range(1, lines + 1))
        (tmp_path / task.name / "metrics.jsonl").write_text(text)
    assert Pool(runs=tmp_path, device="cpu", workers=1).run(little_plan(*TASKS), silent) == []
    assert [steps_of(task, tmp_path) for task in TASKS] == [STEPS] * 3
    assert not (tmp_path / f"{TASKS[0].name}.log").exists()
    threads = workers.cores()
    assert said_by(TASKS[1], tmp_path) == [f"from 2 with {threads} threads"]


def test_a_failure_is_told_and_the_others_are_done(quick, tmp_path):
    quick.setattr(local, "command", pretended(fails=lambda task: task == TASKS[0]))
    (failed,) = Pool(runs=tmp_path, device="cpu", workers=1).run(little_plan(*TASKS), silent)
    assert failed.task == TASKS[0]
    assert failed.why == "truedrift: error: no such luck; allowed is some; find it"
    assert [steps_of(task, tmp_path) for task in TASKS[1:]] == [STEPS] * 2


@pytest.mark.skipif(os.name != "posix", reason="sends SIGTERM")
def test_a_signal_lets_every_run_save_and_the_next_command_goes_on(quick, tmp_path):
    quick.setattr(local, "command", pretended(pause=0.1))

    def ask(what, done, total):
        if done >= 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="SIGTERM") as stopped:
        Pool(runs=tmp_path, device="cpu", workers=1).run(little_plan(*TASKS), ask)
    assert stopped.value.status == 75
    assert said_by(TASKS[0], tmp_path)[-1] == "saved"
    begun = len(steps_of(TASKS[0], tmp_path))
    assert 2 <= begun < 6
    assert not (tmp_path / TASKS[1].name).exists()  # none is started after the signal
    assert Pool(runs=tmp_path, device="cpu", workers=2).run(little_plan(*TASKS), silent) == []
    assert [steps_of(task, tmp_path) for task in TASKS] == [STEPS] * 3
    assert said_by(TASKS[0], tmp_path)[2].startswith(f"from {begun} ")


def test_no_process_outlives_an_error(quick, tmp_path):
    quick.setattr(local, "command", pretended(pause=60.0))
    started = []

    class Remembered(local.subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    quick.setattr(local.subprocess, "Popen", Remembered)

    def fail(what, done, total):
        raise RuntimeError("no more room to tell")

    with pytest.raises(RuntimeError, match="no more room to tell"):
        Pool(runs=tmp_path, device="cpu", workers=2).run(little_plan(*TASKS), fail)
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2


def test_a_real_run(tmp_path):
    """The command itself, in a process of its own."""
    task = little_task(0)
    assert Pool(runs=tmp_path, device="cpu", workers=1).run(little_plan(task), silent) == []
    assert steps_of(task, tmp_path) == STEPS
    assert is_done(task, tmp_path / task.name)
    assert json.loads((tmp_path / task.name / "config.json").read_text())["config"]["batch"]["n"] == 3
    assert said_by(task, tmp_path)[1] == "complete: 6 steps, 18 positives a class seen"


@pytest.mark.slow
def test_a_real_run_that_is_refused_does_not_stop_the_other(tmp_path):
    good, bad = little_task(0), little_task(1, "abc", "batch.n=9999")
    (failed,) = Pool(runs=tmp_path, device="cpu", workers=1).run(little_plan(bad, good), silent)
    assert failed.task == bad
    assert "batch.n is 9999" in failed.why
    assert steps_of(good, tmp_path) == STEPS


def test_workers_share_cores_and_gpus(monkeypatch):
    monkeypatch.setattr(workers, "cores", lambda: 8)
    assert workers.worker_count("cpu", None, 100) == 8
    assert workers.worker_count("cpu", 3, 100) == 3
    assert workers.worker_count("cpu", None, 2) == 2
    assert workers.places("cpu", 3) == [{"OMP_NUM_THREADS": "2"}] * 3
    monkeypatch.setattr(workers, "find_device", lambda name: workers.torch.device("cuda", 0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert workers.worker_count("auto", None, 100) == 2
    assert [place["CUDA_VISIBLE_DEVICES"] for place in workers.places("auto", 3)] == ["2", "5", "2"]


def test_workers_are_at_least_one(tmp_path):
    with pytest.raises(ValueError, match="workers is 0; allowed is an integer from 1"):
        Pool(runs=tmp_path, workers=0)


def test_done_is_an_evaluation_at_the_last_step(tmp_path):
    judged, plain = little_task(0, "abc", "evaluation.extractor=digits"), little_task(0)
    (tmp_path / "metrics.jsonl").write_text('{"step": 5}\n{"step": 6}\n{"step": 3, "evaluation": {}}\n{"step": 6, "ev')
    assert is_done(plain, tmp_path)
    assert not is_done(judged, tmp_path)
    assert steps_taken(judged, tmp_path) == 6
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('aluation": {"fid": 3.0}}\n')
    assert is_done(judged, tmp_path)
    assert not is_done(judged, tmp_path / "nowhere")


def test_only_the_end_of_a_long_file_is_read(tmp_path):
    task = little_task(0, "abc", "cadence.epochs=100000")
    lines = [f'{{"step": {step}, "more": "{"x" * 100}"}}\n' for step in range(1, 3001)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    assert steps_taken(task, tmp_path) == 3000


def test_seconds_are_those_between_start_and_end(tmp_path):
    events = [
        ("started", "10:00:00"),
        ("interrupted", "10:00:07"),
        ("resumed", "11:00:00"),  # and killed
        ("resumed", "12:00:00"),
        ("changed", "12:00:01"),
        ("complete", "12:00:30"),
    ]
    lines = [f'{{"event": "{event}", "time": "2026-01-01T{at}+00:00"}}\n' for event, at in events]
    (tmp_path / "history.jsonl").write_text("".join(lines))
    assert seconds(tmp_path) == 7 + 30
