"""Metrics of a run in metrics.jsonl and TensorBoard: forces, effective sample sizes, corrections, spread, timing."""

import json
import math
import statistics
from functools import partial

import pytest
import torch
from short_runs import SimulatedCrash, at_step, crash, run, short_config

from truedrift.data import load
from truedrift.distributed import resolve_device
from truedrift.generators import MLP, MLPOptions
from truedrift.objective import drift_loss
from truedrift.progress import no_progress
from truedrift.training import (
    Objective,
    ObjectiveOptions,
    Parts,
    build_setup,
    draw_inputs,
    learning_rate,
    load_samples,
    read_metrics,
    telemetry,
)
from truedrift.training import loop as loop_module

ENERGY = ("energy", "energy_error")
LISTS = ("n_eff_pos", "n_eff_neg", "dominated_pos", "dominated_neg", "correction_pos", "correction_neg")


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """A run with three scales and two temperatures, so that the two axes cannot be confused."""
    out = tmp_path_factory.mktemp("run") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(tmp_path_factory.mktemp("cache")))
        settings = ("encoder.kind=convnet", "encoder.channels=3,4,5", "objective.temperatures=0.05,0.5")
        config = short_config("digits", *settings, "objective.estimator_neg=standard")
        run(config, out)
        yield config, out, read_metrics(out / "metrics.jsonl")


def test_metrics_are_complete(trained_run):
    config, _, lines = trained_run
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    for line in lines:
        assert [len(row) for row in line["force"]] == [2, 2, 2]
        assert all(len(line[name]) == 2 for name in LISTS)
        assert all(force > 0 for row in line["force"] for force in row)
        assert all(1 <= n <= config.batch.n for n in line["n_eff_pos"])
        assert line["n_eff_pos"][0] < line["n_eff_pos"][1]  # weights are more even at a larger temperature
        assert all(size > 0 for size in line["correction_pos"])
        assert line["correction_neg"] == [0, 0]  # the standard estimator has no correction
        assert line["spread"] > 0
        assert all(len(line[name]) == 3 and min(line[name]) > 0 for name in ENERGY)
        assert line["temperatures"] == [0.05, 0.5]
        assert line["epoch"] == line["step"] / 2
        assert line["positives_seen"] == 3 * line["step"]
        assert line["learning_rate"] == learning_rate(config.optimizer, line["step"] - 1)
        assert line["gradient_norm"] > 0
        assert line["timing"]["images_per_second"] > 1
        assert 50 < line["timing"]["memory_megabytes"] < 100_000
    assert len({json.dumps(line["force"]) for line in lines}) == 4


def test_metrics_equal_those_of_drift_loss(trained_run):
    """Compare with `drift_loss` of every class and scale separately, on the features of the second step."""
    config, _, lines = trained_run
    step = build_setup(config, Parts(), load_samples(config, Parts()), resolve_device("cpu"), no_progress).step
    step(0)
    with torch.no_grad():
        (generated,) = step.objective.layout.stacks(
            step.features(draw_inputs(config, step.state.generator, 1)).unflatten(0, (10, 3))
        )
    (positives,) = step.objective.layout.stacks(step.positives.at(1))
    options = config.objective
    single = [
        [
            drift_loss(
                generated[s, c],
                positives[s, c],
                temperatures=options.temperatures,
                estimator_neg=options.estimator_neg,
                feature_scale=options.feature_scale,
                normalization=options.normalization,
            )
            for c in range(10)
        ]
        for s in range(3)
    ]
    metrics = lines[0]
    near = partial(pytest.approx, rel=1e-4)
    for s in range(3):
        assert torch.stack([loss.report.force for loss in single[s]]).mean(0).tolist() == near(metrics["force"][s])
    for name in LISTS:
        values = torch.stack([getattr(loss.report, name) for row in single for loss in row])
        assert values.mean(0).tolist() == pytest.approx(metrics[name], rel=1e-4, abs=1e-6)
    assert float(torch.stack([loss.report.spread for row in single for loss in row]).mean()) == near(metrics["spread"])
    assert float(torch.stack([out.loss for row in single for out in row]).mean()) == near(metrics["loss"])


def literal_energy(x, y):
    """2 E d(x, y) − E d(x, x′) − E d(y, y′) over pairs of different samples, divided by the mean over all pairs."""

    def mean(distances):
        return statistics.fmean(distances)

    def among(points):
        return mean(math.dist(a, b) for i, a in enumerate(points) for j, b in enumerate(points) if i != j)

    return (2 * mean(math.dist(a, b) for a in x for b in y) - among(x) - among(y)) / among([*x, *y])


def test_energy_is_the_mean_over_the_steps_since_the_last_log(trained_run):
    """Features of each step, read from a second run of the same steps; the ratio does not depend on their scale."""
    config, _, lines = trained_run
    step = build_setup(config, Parts(), load_samples(config, Parts()), resolve_device("cpu"), no_progress).step
    energies = []
    for number in range(8):
        with torch.no_grad():
            drawn = step.features(draw_inputs(config, step.state.generator, number))
        layout = step.objective.layout
        generated = layout.stacks(drawn.unflatten(0, (10, 3)))[0].double().tolist()
        positives = layout.stacks(step.positives.at(number))[0].double().tolist()
        energies.append(
            [statistics.fmean(literal_energy(generated[s][c], positives[s][c]) for c in range(10)) for s in range(3)]
        )
        step(number)
    for k, line in enumerate(lines):
        window = list(zip(*energies[2 * k : 2 * k + 2], strict=True))
        assert line["energy"] == pytest.approx([statistics.fmean(each) for each in window], rel=1e-4)
        errors = [statistics.stdev(each) / math.sqrt(2) for each in window]
        assert line["energy_error"] == pytest.approx(errors, rel=1e-2, abs=1e-5)


def test_energy_average_has_mean_and_standard_error_and_skips_what_is_not_finite():
    rows = [[0.5, 1.0], [0.25, math.nan], [math.inf, 3.0], [-0.125, math.nan]]
    average = telemetry.EnergyAverage(2, resolve_device("cpu"))
    assert all(math.isnan(value) for values in average.metrics().values() for value in values)
    for row in rows:
        average.add(torch.tensor(row))
    known = [[value for value in column if math.isfinite(value)] for column in zip(*rows, strict=True)]
    found = average.metrics()
    assert found["energy"] == pytest.approx([statistics.fmean(each) for each in known], rel=1e-12)
    errors = [statistics.stdev(each) / math.sqrt(len(each)) for each in known]
    assert found["energy_error"] == pytest.approx(errors, rel=1e-12)
    # JSON restores the sums exactly.
    restored = telemetry.EnergyAverage(2, resolve_device("cpu"))
    restored.load(json.loads(json.dumps(average.sums())))
    for each in (average, restored):
        each.add(torch.tensor([1 / 3, 0.1]))
    assert restored.metrics() == average.metrics() != found
    # Sums of another number of scales, and those of older checkpoints, start a new mean.
    for sums in ([[1.0], [2.0], [3.0]], []):
        restored.load(sums)
        assert restored.sums() == [[0, 0]] * 3
    average.reset()
    assert average.sums() == [[0, 0]] * 3


def test_energy_is_accumulated_without_reading_the_device(monkeypatch):
    """Tensors on the device "meta" have no values, so that reading one fails."""
    meta, autocast = torch.device("meta"), torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda device, **options: autocast("cpu", enabled=False))  # meta has none
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device=None: False)
    gen, pos = torch.randn(2, 3, 4, 5, device=meta), torch.randn(2, 3, 40, 5, device=meta)
    average = telemetry.EnergyAverage(2, meta)
    for feature_scale in ("mean-distance", "standardize-l2"):
        average.add(Objective(ObjectiveOptions(feature_scale=feature_scale), (1.0, 1.0))(gen, pos).energy())
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        average.metrics()


class CollapsedMLP(MLP):
    """A generator whose samples of a class are all the same."""

    def generate(self, z, labels, strength, style_ids):
        return super().generate(torch.zeros_like(z), labels, torch.ones_like(strength), style_ids)


def build_generator(kind):
    return kind(MLPOptions(width=16, depth=1, noise=4, embedding=4), sample_shape=(1, 8, 8), classes=10)


@pytest.mark.parametrize(("kind", "collapses"), [(CollapsedMLP, True), (MLP, False)])
def test_collapse_warning(tmp_path, kind, collapses):
    messages = []
    settings = ("condition.label_dropout=0", "objective.feature_scale=mean-distance", "optimizer.warmup_steps=3")
    run(
        short_config("digits", *settings),
        tmp_path,
        parts=Parts(generator=build_generator(kind)),
        notify=messages.append,
    )
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [line["collapsed"] for line in lines] == [False] + [collapses] * 3  # never during warm-up
    assert all((line["spread"] < 0.1) is collapses for line in lines)
    warnings = [message for message in messages if "may have collapsed" in message]
    assert [warning.split(":")[0] for warning in warnings] == (["step 4"] if collapses else [])  # only once


def test_collapse_warning_is_not_repeated_after_a_crash(tmp_path):
    messages = []
    config = short_config("digits", "condition.label_dropout=0", "optimizer.warmup_steps=1")
    for progress in (at_step(4, crash), lambda *_: None):
        parts = Parts(generator=build_generator(CollapsedMLP))
        try:
            run(config, tmp_path, parts=parts, notify=messages.append, progress=progress)
        except SimulatedCrash:
            continue
    assert len([message for message in messages if "may have collapsed" in message]) == 1


def test_images_and_positives_of_some_classes_are_counted(tmp_path, monkeypatch):
    """Two of ten classes per step: 2 · 3 images per step, and a tenth of two steps' positives per class."""
    counted = []
    monkeypatch.setattr(loop_module, "timing", lambda images, since, device: counted.append(images) or {})
    run(short_config("digits", "batch.labels=2", "cadence.log_every=4"), tmp_path)
    assert counted == [4 * 2 * 3, 4 * 2 * 3]
    assert [line["positives_seen"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [
        3 * 4 * 2 // 10,
        3 * 8 * 2 // 10,
    ]


def test_toy_has_one_scale(tmp_path):
    run(short_config("toy"), tmp_path)
    assert len(load("eight-gaussians").classes) == 8
    for line in read_metrics(tmp_path / "metrics.jsonl"):
        assert [len(row) for row in line["force"]] == [3]
