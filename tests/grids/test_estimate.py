"""The estimate of a dry run: the paper's hours at scale `paper`, timed steps at the other scales."""

from types import SimpleNamespace

import pytest
import torch
from oracles.small_grid import small_plan, small_task

from truedrift.grids import StudyOptions, estimate, precompute_reference
from truedrift.paper import catalog
from truedrift.training import Parts, load_samples

HOUR = 3600


def hours(item, n=None):
    plan = catalog.plan_grid(item, StudyOptions(scale="paper"))
    return sum(estimate.paper_seconds(task) for task in plan.tasks if n in (None, task.config.batch.n)) / HOUR


def test_main_grid_takes_700_hours():
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


def test_finished_steps_are_not_counted(tmp_path, monkeypatch):
    plan = catalog.plan_grid("tab:main_results", StudyOptions(scale="paper", seeds=1))
    done, half = plan.tasks[:2]
    lines = {done: f'{{"step": {done.steps}, "evaluation": {{}}}}', half: f'{{"step": {half.steps // 2}}}'}
    for task, line in lines.items():
        (tmp_path / task.name).mkdir()
        (tmp_path / task.name / "metrics.jsonl").write_text(line + "\n")
    saved = estimate.paper_seconds(done) + estimate.paper_seconds(half) / 2
    total = sum(map(estimate.paper_seconds, plan.tasks))
    remaining = estimate.remaining_steps(plan, tmp_path)
    assert done not in remaining
    seconds = sum(estimate.paper_seconds(task) * steps / task.steps for task, steps in remaining.items())
    assert seconds == pytest.approx(total - saved)
    monkeypatch.setattr(estimate, "missing_requirements", lambda config: None)
    first, second, third, *_, last = estimate.describe_plan(plan, tmp_path, "cpu", None).splitlines()[1:]
    assert first.split()[-1] == "done"
    assert second.endswith(f"{half.steps // 2} of {half.steps} steps")
    assert third.endswith("to do")
    assert last == f"estimate: {(total - saved) / HOUR:.0f} h on one A100, from the paper's times"


def test_the_local_estimate_is_steps_times_seconds_over_workers(tmp_path, monkeypatch):
    half, whole, other = small_task(0), small_task(1), small_task(2, "abc", "batch.n=5")
    (tmp_path / half.name).mkdir()
    (tmp_path / half.name / "metrics.jsonl").write_text('{"step": 3}\n')
    timed = []

    def seconds_per_step(config, samples, device):
        timed.append(config.batch.n)
        return 20.0 if config.batch.n == 5 else 10.0

    monkeypatch.setattr(estimate, "seconds_per_step", seconds_per_step)
    plan = small_plan(half, whole, other)
    last = estimate.describe_plan(plan, tmp_path, "cpu", 1).splitlines()[-1]
    assert (3 + 6) * 10 + 6 * 20 == 210
    assert last == "estimate: 4 min of training with 1 worker, from 5 steps per batch size, without evaluations"
    assert sorted(timed) == sorted({half.config.batch.n, 5})
    last = estimate.describe_plan(plan, tmp_path, "cpu", 3).splitlines()[-1]
    assert last.startswith("estimate: 70 s of training with 3 workers")
    (tmp_path / half.name / "metrics.jsonl").write_text('{"step": 6}\n')
    assert estimate.describe_plan(small_plan(half), tmp_path, "cpu", 1).endswith("estimate: nothing is left to do")


def test_steps_are_timed_after_a_warm_up(monkeypatch):
    clock, numbers = [0.0], []
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: clock[0])

    def step(number):
        numbers.append(number)
        clock[0] += 100.0 if number < 2 else 3.0
        return SimpleNamespace(gradient_norm=1.0)

    monkeypatch.setattr(estimate, "build_setup", lambda *parts: SimpleNamespace(step=step))
    assert estimate.seconds_per_step(small_task().config, None, None) == 3.0
    assert numbers == list(range(7))


def test_a_real_run_can_be_timed():
    config = small_task().config
    assert estimate.seconds_per_step(config, load_samples(config, Parts()), torch.device("cpu")) > 0


def test_reference_features_are_computed_once_before_the_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    evaluation = ("evaluation.extractor=encoder:pixels", "evaluation.samples=200", "evaluation.reference=300")
    plan = small_plan(small_task(0, "abc", *evaluation), small_task(1, "abc", *evaluation))
    messages = []
    precompute_reference(plan, "cpu", lambda *progress: messages.append(progress))
    assert messages[-1] == ("features of digits", 300, 300)
    messages.clear()
    precompute_reference(plan, "cpu", lambda *progress: messages.append(progress))
    precompute_reference(small_plan(small_task()), "cpu", lambda *progress: messages.append(progress))  # no evaluation
    assert messages == []


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (600, "10 min"), (7200, "2 h"), (700 * 3600, "700 h")])
def test_format_duration(seconds, text):
    assert estimate.format_duration(seconds) == text
