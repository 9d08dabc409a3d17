"""The estimate: the paper's hours at its scale, elsewhere what runs here have taken, or would."""

import dataclasses

import pytest
from oracles.little_grid import little_plan, little_task

from truedrift.grids import estimate
from truedrift.grids.options import StudyOptions
from truedrift.grids.run import precompute_reference
from truedrift.paper.catalog import plan_grid

HOUR = 3600


def hours(item, n=None):
    plan = plan_grid(item, StudyOptions(scale="paper"))
    return sum(estimate.paper_seconds(task) for task in plan.tasks if n in (None, task.config.batch.n)) / HOUR


def test_the_main_grid_takes_the_papers_700_hours():
    assert hours("tab:main_results") == pytest.approx(700)
    at_8 = 3 * 4000 * (37.1 + 42.8) / HOUR
    assert hours("tab:main_results", 8) == pytest.approx(at_8)
    assert round(at_8) == 266
    assert hours("tab:main_results", 16) == hours("tab:main_results", 64) == pytest.approx((700 - at_8) / 3)


def test_the_ablation_has_one_variant_without_a_correction():
    assert hours("fig:ablation_trajectory") == pytest.approx(3 * 4000 * (37.1 + 3 * 42.8) / HOUR)


def test_samples_of_cifar100_cost_as_much_as_those_of_cifar10():
    a_sample = hours("tab:main_results", 64) / 6 / (500 * 195 * 64 * 10)
    assert hours("tab:cifar100", 16) == pytest.approx(2 * 2000 * 195 * 16 * 100 * a_sample)


def test_what_is_done_costs_nothing_and_what_is_half_done_half(tmp_path, monkeypatch):
    plan = plan_grid("tab:main_results", StudyOptions(scale="paper", seeds=1))
    done, half = plan.tasks[:2]
    lines = {done: f'{{"step": {done.steps}, "evaluation": {{}}}}', half: f'{{"step": {half.steps // 2}}}'}
    for task, line in lines.items():
        (tmp_path / task.name).mkdir()
        (tmp_path / task.name / "metrics.jsonl").write_text(line + "\n")
    found = estimate.estimate(plan, tmp_path, "cpu", None)
    spared = estimate.paper_seconds(done) + estimate.paper_seconds(half) / 2
    assert found.seconds == pytest.approx(sum(map(estimate.paper_seconds, plan.tasks)) - spared)
    assert found.basis == "on one A100, from the times that the paper tells"
    monkeypatch.setattr(estimate, "missing_requirements", lambda plan: None)
    first, second, third = estimate.describe_plan(plan, tmp_path, "cpu", None).splitlines()[1:4]
    assert first.split()[-1] == "done"
    assert second.endswith(f"{half.steps // 2} of {half.steps} steps")
    assert third.endswith("to do")


def test_here_from_runs_that_are_done_and_else_from_a_few_steps(tmp_path, monkeypatch):
    known, same_kind, other = little_task(0), little_task(1), little_task(2, "abc", "batch.n=5")
    (tmp_path / known.name).mkdir()
    (tmp_path / known.name / "metrics.jsonl").write_text('{"step": 6}\n')
    times = (("started", 0), ("complete", 30))
    lines = [f'{{"event": "{event}", "time": "2026-01-01T00:00:{at:02d}+00:00"}}\n' for event, at in times]
    (tmp_path / known.name / "history.jsonl").write_text("".join(lines))
    monkeypatch.setattr(estimate, "time_run", lambda task, device, threads: 100.0 if task == other else 1e9)
    found = estimate.estimate(little_plan(known, same_kind, other), tmp_path, "cpu", 1)
    assert found.seconds == pytest.approx(10 + 30 + 10 + 100)  # ten seconds before the first step of each
    tried = "5 steps of a run of each kind and some images before its judge"
    assert found.basis == f"with 1 worker, from runs that were done here and {tried}"
    assert estimate.estimate(little_plan(other), tmp_path, "cpu", 1).basis == f"with 1 worker, from {tried}"
    assert estimate.estimate(little_plan(known), tmp_path, "cpu", 1).basis == "since nothing is left to do"


def test_a_run_is_timed_by_its_steps_and_evaluations(monkeypatch):
    task = little_task(0, "abc", "evaluation.extractor=encoder:pixels", "evaluation.samples=200", "cadence.epochs=51")
    assert estimate.evaluations(task.config) == 11  # every five epochs, and at the last step
    monkeypatch.setattr(estimate, "_seconds", lambda act, times: (act(), 2.0 if times == 5 else 0.5)[1])
    assert estimate.time_run(task, "cpu", 1) == pytest.approx(153 * 2.0 + 11 * 200 / 20 * 0.5)
    plain = dataclasses.replace(task, config=little_task(0).config)
    assert estimate.time_run(plain, "cpu", 1) == pytest.approx(6 * 2.0)


def test_what_runs_are_compared_with_is_counted_once_unless_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    judged = ("evaluation.extractor=encoder:pixels", "evaluation.samples=200", "evaluation.reference=300")
    plan = little_plan(little_task(0, "abc", *judged), little_task(1, "abc", *judged))
    monkeypatch.setattr(estimate, "_seconds", lambda act, times: 2.0 if times == 5 else 0.5)
    each = 10 + 6 * 2.0 + 200 / 20 * 0.5
    assert estimate.estimate(plan, tmp_path, "cpu", 2).seconds == pytest.approx(each + 300 / 20 * 0.5)
    told = []
    precompute_reference(plan, "cpu", lambda *progress: told.append(progress))
    assert told[-1] == ("features of digits", 300, 300)
    assert estimate.estimate(plan, tmp_path, "cpu", 2).seconds == pytest.approx(each)
    told.clear()
    precompute_reference(plan, "cpu", lambda *progress: told.append(progress))
    precompute_reference(little_plan(little_task()), "cpu", lambda *progress: told.append(progress))  # nobody judges it
    assert told == []


def test_seconds_are_a_mean_after_a_warm_up(monkeypatch):
    clock = [0.0]
    calls = []
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: clock[0])

    def act():
        calls.append(True)
        clock[0] += 100.0 if len(calls) <= 2 else 3.0

    assert estimate._seconds(act, 4) == 3.0


@pytest.mark.parametrize(("seconds", "said"), [(40, "40 s"), (600, "10 min"), (7200, "2 h"), (700 * 3600, "700 h")])
def test_times_as_people_say_them(seconds, said):
    assert estimate.format_duration(seconds) == said
