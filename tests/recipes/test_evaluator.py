"""Evaluations during training equal those of `truedrift evaluate`, also in a resumed run."""

import json

import pytest
import torch

from truedrift import generators
from truedrift.data import load
from truedrift.evaluation import evaluate
from truedrift.page.run_data import read_run
from truedrift.recipes import RECIPES, build_evaluator, load_reference_data, recipe
from truedrift.training import Parts, load_generator, load_samples, train

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
def cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))


def small_config(*settings):
    return recipe("digits", settings=(*SMALL, *settings))


def read_evaluations(run):
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [entry for entry in entries if "evaluation" in entry]


def test_last_evaluation_equals_that_of_the_saved_generator(tmp_path):
    config = small_config()
    evaluator = build_evaluator(config, device=CPU)
    for _ in train(config, out=tmp_path / "run", device="cpu", evaluate=evaluator):
        pass
    evaluations = read_evaluations(tmp_path / "run")
    assert [entry["step"] for entry in evaluations] == [4, 8, 12]
    metrics, protocol = evaluate(
        load_generator(tmp_path / "run").generator, evaluator.reference, evaluator.extractor, samples=60, seed=0
    )
    last = evaluations[-1]
    assert last["evaluation"] == pytest.approx(vars(metrics), rel=1e-9)
    assert last["protocol"] == vars(protocol)
    assert last["protocol"]["extractor"] == "digits"
    assert last["evaluation"]["fid"] != evaluations[0]["evaluation"]["fid"]
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "step-00000012" / "manifest.json").read_text())
    best = min(evaluations, key=lambda entry: entry["evaluation"]["fid"])
    assert manifest["facts"]["best"] == {"step": best["step"], "fid": best["evaluation"]["fid"]}


def test_resumed_run_has_the_same_evaluations(tmp_path):
    def run_in_stages(name, *stages):
        for epochs in stages:
            config = small_config(f"cadence.epochs={epochs}")
            for _ in train(config, out=tmp_path / name, device="cpu", evaluate=build_evaluator(config, device=CPU)):
                pass
        return read_evaluations(tmp_path / name)

    uninterrupted, resumed = run_in_stages("uninterrupted", 6), run_in_stages("resumed", 4, 6)
    assert [entry["step"] for entry in resumed] == [4, 8, 12]
    assert resumed == uninterrupted


def test_reference_data_is_a_fixed_part_of_the_split():
    config = small_config("evaluation.split=test", "evaluation.reference=40")
    part = load_reference_data(config.data, config.evaluation, seed=0)
    repeated = load_reference_data(config.data, config.evaluation, seed=0)
    assert len(part) == 40
    assert part.values.equal(repeated.values)
    assert len(part.labels.unique()) > 5
    split = load_reference_data(
        config.data, small_config("evaluation.split=test", "evaluation.reference=9999").evaluation, seed=0
    )
    assert len(split) == 360


@pytest.mark.parametrize("split", ["train", "test"])
def test_run_on_some_classes_is_compared_with_these(split):
    config = small_config("data.classes=3,8", f"evaluation.split={split}")
    for samples in (load_samples(config, Parts()), None):
        evaluator = build_evaluator(config, device=CPU, samples=samples)
        assert evaluator.data.classes == ("3", "8")
        assert evaluator.data.digest() == load("digits", split=split, classes=("3", "8")).digest()
        protocol = evaluator(untrained(config), 0)["protocol"]
        assert protocol["reference"] == "digits (3, 8)"
        assert protocol["reference_count"] == len(load("digits", split=split, classes=("3", "8")))


def untrained(config):
    return generators.build(config.generator, sample_shape=(1, 8, 8), classes=2, seed=0)


def test_every_average_is_evaluated(tmp_path):
    """By its own weights; the main one decides which checkpoint is the best."""
    config = small_config("optimizer.ema=0.9", "optimizer.more_ema=0.5,0.99", "optimizer.warmup_steps=1")
    evaluator = build_evaluator(config, device=CPU)
    for _ in train(config, out=tmp_path / "run", device="cpu", evaluate=evaluator):
        pass
    evaluations = read_evaluations(tmp_path / "run")
    assert [sorted(entry["more_ema"]) for entry in evaluations] == [["0.5", "0.99"]] * 3
    last = evaluations[-1]
    for decay, numbers in ((0.9, last["evaluation"]), *((float(d), n) for d, n in last["more_ema"].items())):
        generator = load_generator(tmp_path / "run", ema=decay).generator
        metrics, _ = evaluate(generator, evaluator.reference, evaluator.extractor, samples=60, seed=0)
        assert numbers == pytest.approx(vars(metrics), rel=1e-9)
    fids = [last["evaluation"]["fid"], *(numbers["fid"] for numbers in last["more_ema"].values())]
    assert len(set(fids)) == 3
    # The page reads the evaluations of the main average.
    assert [each.metrics.fid for each in read_run(tmp_path / "run", "run").evaluations] == [
        entry["evaluation"]["fid"] for entry in evaluations
    ]


def test_building_an_evaluator_does_no_work(tmp_path):
    evaluator = build_evaluator(small_config(), device=CPU)
    assert not (tmp_path / "cache").exists()
    assert evaluator.reference.count == len(evaluator.data)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["references"]


def test_no_evaluator_without_an_extractor():
    assert build_evaluator(small_config("evaluation.extractor=none"), device=CPU) is None


def test_errors_are_raised_before_the_first_step():
    with pytest.raises(ValueError, match=r"the extractor is 'fid'; must be one of 'inception'"):
        build_evaluator(small_config("evaluation.extractor=fid"), device=CPU)
    with pytest.raises(ValueError, match=r"data.name cifar10: cifar10 is not in the cache"):
        build_evaluator(recipe("cifar10"), device=CPU)


def test_evaluation_options_of_the_recipes():
    options = {name: RECIPES[name]().evaluation for name in RECIPES}
    assert (options["cifar10"].extractor, options["cifar10"].samples) == ("inception", 50_000)
    assert options["cifar100"] == options["cifar10"]
    assert RECIPES["cifar10"]().cadence.evaluate_every_epochs == 25
    assert options["digits"].extractor == "digits"
    assert options["cifar10-cpu"].extractor is None
