"""What a run says of itself: forces, effective sizes, corrections, spread, speed; in metrics.jsonl and TensorBoard."""

import json
import math
import time
from functools import partial

import pytest
import torch
from short_runs import Dropped, at, drop, run, tiny
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from truedrift.data.load import load
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.objective.drift_loss import drift_loss
from truedrift.progress import no_progress
from truedrift.training.batch import draw_inputs
from truedrift.training.journal import read_metrics
from truedrift.training.setup import Parts, build_setup, load_samples, resolve_device
from truedrift.training.state import learning_rate
from truedrift.training.telemetry import finite_or_none, tensorboard_scalars

LISTS = ("n_eff_pos", "n_eff_neg", "dominated_pos", "dominated_neg", "correction_pos", "correction_neg")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three feature groups and two temperatures, so that nothing can be exchanged."""
    out = tmp_path_factory.mktemp("run") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(tmp_path_factory.mktemp("cache")))
        settings = ("encoder.kind=convnet", "encoder.channels=3,4,5", "objective.temperatures=0.05,0.5")
        config = tiny("digits", *settings, "objective.estimator_neg=standard")
        run(config, out)
        yield config, out, read_metrics(out / "metrics.jsonl")


def test_every_number_is_there(trained):
    config, _, lines = trained
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    for line in lines:
        assert [len(row) for row in line["force"]] == [2, 2, 2]
        assert all(len(line[name]) == 2 for name in LISTS)
        assert all(force > 0 for row in line["force"] for force in row)
        assert all(1 <= n <= config.batch.n for n in line["n_eff_pos"])
        assert line["n_eff_pos"][0] < line["n_eff_pos"][1]  # a larger temperature weighs more evenly
        assert all(moved > 0 for moved in line["correction_pos"])
        assert line["correction_neg"] == [0, 0]  # its estimator moves nothing
        assert line["spread"] > 0
        assert line["temperatures"] == [0.05, 0.5]
        assert line["epoch"] == line["step"] / 2
        assert line["positives_seen"] == 3 * line["step"]
        assert line["learning_rate"] == learning_rate(config.optimizer, line["step"] - 1)
        assert line["gradient_norm"] > 0
        assert line["timing"]["images_per_second"] > 1
        assert 50 < line["timing"]["memory_megabytes"] < 100_000
    assert len({json.dumps(line["force"]) for line in lines}) == 4


def test_they_are_those_of_the_loss(trained):
    """Against `drift_loss` of every class and scale by itself, on the features of the second step."""
    config, _, lines = trained
    step = build_setup(config, Parts(), load_samples(config, Parts()), resolve_device("cpu"), no_progress).step
    step(0)
    with torch.no_grad():
        generated = step.features(draw_inputs(config, step.state.generator, 1)).transpose(0, 1).unflatten(1, (10, 3))
    positives = step.positives.at(1)
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
    told = lines[0]
    near = partial(pytest.approx, rel=1e-4)
    for s in range(3):
        assert torch.stack([each.report.force for each in single[s]]).mean(0).tolist() == near(told["force"][s])
    for name in LISTS:
        values = torch.stack([getattr(each.report, name) for row in single for each in row])
        assert values.mean(0).tolist() == pytest.approx(told[name], rel=1e-4, abs=1e-6)
    assert float(torch.stack([each.report.spread for row in single for each in row]).mean()) == near(told["spread"])
    assert float(torch.stack([each.loss for row in single for each in row]).mean()) == near(told["loss"])


def events(out):
    accumulator = EventAccumulator(str(out / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: {e.step: e.value for e in accumulator.Scalars(tag)} for tag in accumulator.Tags()["scalars"]}


def expected_events(lines):
    """Written out by hand for two temperatures and three groups."""
    tags = {}
    for line in lines:
        values = {"timing/images_per_second": line["timing"]["images_per_second"]}
        values["timing/memory_megabytes"] = line["timing"]["memory_megabytes"]
        for name in (
            "epoch",
            "positives_seen",
            "loss",
            "gradient_norm",
            "learning_rate",
            "spread",
            "collapsed",
            "skipped",
        ):
            values[name] = float(line[name])
        for position, tau in enumerate(("tau-0.05", "tau-0.5")):
            values |= {f"{name}/{tau}": line[name][position] for name in LISTS}
            values |= {f"force/scale-{s}/{tau}": line["force"][s][position] for s in range(3)}
        for tag, value in values.items():
            tags.setdefault(tag, {})[line["step"]] = pytest.approx(value, rel=1e-6)  # events are float32
    return tags


def test_tensorboard_has_the_same_numbers(trained):
    _, out, lines = trained
    assert events(out) == expected_events(lines)


def test_tensorboard_after_a_kill_shows_each_step_once(tmp_path):
    config = tiny("digits", "cadence.log_every=1")
    with pytest.raises(Dropped):
        run(config, tmp_path, progress=at(6, drop))
    time.sleep(1.1)  # the files are read in the order of their names, which tell seconds
    run(config, tmp_path)
    seen = events(tmp_path)
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert seen["loss"] == {line["step"]: pytest.approx(line["loss"], rel=1e-6) for line in lines}
    assert list(seen["loss"]) == [1, 2, 3, 4, 5, 6, 7, 8]


class Constant(MLP):
    """Every sample of a class is the same."""

    def generate(self, z, labels, strength, style_ids):
        return super().generate(torch.zeros_like(z), labels, torch.ones_like(strength), style_ids)


def small_generator(kind):
    return kind(MLPOptions(width=16, depth=1, noise=4, embedding=4), sample_shape=(1, 8, 8), classes=10)


@pytest.mark.parametrize(("kind", "collapses"), [(Constant, True), (MLP, False)])
def test_the_alarm_of_a_collapse(tmp_path, kind, collapses):
    said = []
    settings = ("condition.label_dropout=0", "objective.feature_scale=mean-distance", "optimizer.warmup_steps=3")
    run(tiny("digits", *settings), tmp_path, parts=Parts(generator=small_generator(kind)), notify=said.append)
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [line["collapsed"] for line in lines] == [False] + [collapses] * 3  # never during warm-up
    assert all((line["spread"] < 0.1) is collapses for line in lines)
    alarms = [sentence for sentence in said if "may have collapsed" in sentence]
    assert [alarm.split(":")[0] for alarm in alarms] == (["step 4"] if collapses else [])  # once, and not every time


def test_an_alarm_is_not_repeated_after_a_stop(tmp_path):
    said = []
    config = tiny("digits", "condition.label_dropout=0", "optimizer.warmup_steps=1")
    for act in (at(4, drop), lambda *_: None):
        parts = Parts(generator=small_generator(Constant))
        try:
            run(config, tmp_path, parts=parts, notify=said.append, progress=act)
        except Dropped:
            continue
    assert len([sentence for sentence in said if "collapse" in sentence]) == 1


def test_what_is_not_finite_is_none_and_no_event():
    assert finite_or_none([1.0, math.nan, [math.inf, 2]]) == [1.0, None, [None, 2]]
    assert finite_or_none(math.nan) is None
    assert finite_or_none(False) is False
    metrics = {"step": 3, "temperatures": [0.1, 2.0], "loss": None, "force": [[None, 1.5]], "n_eff_pos": [1.0, None]}
    metrics |= {"evaluation": {"fid": 3.5, "kid": None}, "collapsed": True}
    assert dict(tensorboard_scalars(metrics)) == {
        "force/scale-0/tau-2": 1.5,
        "n_eff_pos/tau-0.1": 1.0,
        "evaluation/fid": 3.5,
        "collapsed": 1.0,
    }


def test_a_toy_has_one_group(tmp_path):
    run(tiny("toy"), tmp_path)
    assert len(load("eight-gaussians").classes) == 8
    for line in read_metrics(tmp_path / "metrics.jsonl"):
        assert [len(row) for row in line["force"]] == [3]
