"""Evaluations during training are those of `truedrift evaluate`, and a resumed run has the same ones."""

import json

import pytest
import torch

from truedrift.evaluation.evaluate import evaluate
from truedrift.recipes.evaluator import build_evaluator, load_reference_data
from truedrift.recipes.overrides import RECIPES, recipe
from truedrift.training.load import load_generator
from truedrift.training.train import train

CPU = torch.device("cpu")
SMALL = (
    "generator.width=16",
    "generator.depth=1",
    "batch.n=3",
    "cadence.epochs=6",
    "cadence.steps_per_epoch=2",
    "cadence.log_every=2",
    "cadence.checkpoint_every=4",
    "cadence.grid_every=none",
    "cadence.evaluate_every_epochs=2",
    "evaluation.samples=60",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))


def little(*settings):
    return recipe("digits", settings=(*SMALL, *settings))


def entries(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_evaluations_during_training_are_those_of_the_command(tmp_path):
    config = little()
    evaluator = build_evaluator(config, device=CPU)
    for _ in train(config, out=tmp_path / "run", device="cpu", evaluate=evaluator):
        pass
    evaluated = [entry for entry in entries(tmp_path / "run") if "evaluation" in entry]
    assert [entry["step"] for entry in evaluated] == [4, 8, 12]
    metrics, protocol = evaluate(
        load_generator(tmp_path / "run").generator, evaluator.reference, evaluator.extractor, samples=60, seed=0
    )
    last = evaluated[-1]
    assert last["evaluation"] == pytest.approx(vars(metrics), rel=1e-9)
    assert last["protocol"] == vars(protocol)
    assert last["protocol"]["extractor"] == "digits"
    assert last["evaluation"]["fid"] != evaluated[0]["evaluation"]["fid"]
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "step-00000012" / "manifest.json").read_text())
    best = min(evaluated, key=lambda entry: entry["evaluation"]["fid"])
    assert manifest["facts"]["best"] == {"step": best["step"], "fid": best["evaluation"]["fid"]}


def test_a_resumed_run_has_the_evaluations_of_a_whole_one(tmp_path):
    def lines(name, *parts):
        for epochs in parts:
            config = little(f"cadence.epochs={epochs}")
            for _ in train(config, out=tmp_path / name, device="cpu", evaluate=build_evaluator(config, device=CPU)):
                pass
        return [entry for entry in entries(tmp_path / name) if "evaluation" in entry]

    whole, parts = lines("whole", 6), lines("parts", 4, 6)
    assert [entry["step"] for entry in parts] == [4, 8, 12]
    assert parts == whole


def test_reference_data():
    config = little("evaluation.split=test", "evaluation.reference=40")
    some = load_reference_data(config.data, config.evaluation, seed=0)
    again = load_reference_data(config.data, config.evaluation, seed=0)
    assert len(some) == 40
    assert some.values.equal(again.values)
    assert len(some.labels.unique()) > 5
    whole = load_reference_data(
        config.data, little("evaluation.split=test", "evaluation.reference=9999").evaluation, seed=0
    )
    assert len(whole) == 360


def test_building_an_evaluator_does_no_work(tmp_path):
    evaluator = build_evaluator(little(), device=CPU)
    assert not (tmp_path / "cache").exists()
    assert evaluator.reference.count == len(evaluator.data)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["digits-classifier", "references"]


def test_without_an_extractor_there_is_no_evaluator():
    assert build_evaluator(little("evaluation.extractor=none"), device=CPU) is None


def test_errors_come_before_the_first_step():
    with pytest.raises(ValueError, match=r"the extractor is 'fid'; must be one of 'inception'"):
        build_evaluator(little("evaluation.extractor=fid"), device=CPU)
    with pytest.raises(ValueError, match=r"data.name cifar10: cifar10 is not in the cache"):
        build_evaluator(recipe("cifar10"), device=CPU)


def test_evaluation_options_of_the_recipes():
    options = {name: RECIPES[name]().evaluation for name in RECIPES}
    assert (options["cifar10"].extractor, options["cifar10"].samples) == ("inception", 50_000)
    assert options["cifar100"] == options["cifar10"]
    assert RECIPES["cifar10"]().cadence.evaluate_every_epochs == 25
    assert options["digits"].extractor == "digits"
    assert options["cifar10-cpu"].extractor is None
