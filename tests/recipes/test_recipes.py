"""Recipes by name, their overrides, and one training step of each."""

import dataclasses
import inspect
import json

import pytest
import torch
from oracles.little_run import CPU

from truedrift.data.samples import Samples
from truedrift.encoders.convnet import ConvNetOptions
from truedrift.errors import UserError
from truedrift.generators.drift_dit import DriftDiTOptions
from truedrift.options import from_dict
from truedrift.progress import no_progress
from truedrift.recipes.overrides import DESCRIPTIONS, RECIPES, recipe
from truedrift.training.config import RunConfig, run_id
from truedrift.training.setup import Parts, build_setup


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_configuration_of_its_name_that_json_gives_back(name):
    config = recipe(name)
    assert isinstance(config, RunConfig)
    assert config.recipe == name
    assert from_dict(RunConfig, json.loads(json.dumps(config.tree()))) == config
    assert recipe(name) == config
    assert DESCRIPTIONS[name]


def test_runs_have_ids_of_their_own():
    trees = [recipe(name).tree() for name in RECIPES] + [recipe("digits", given={"seed": 1}).tree()]
    assert len({run_id(tree) for tree in trees}) == len(trees)


@pytest.mark.parametrize("name", RECIPES)
def test_arguments_are_those_of_the_function_and_none_is_the_recipes_own(name):
    given = {"n": 16, "seed": 7, "estimator": "standard"}
    config = recipe(name, given=given | {"data": None})
    assert (config.batch.n, config.seed) == (16, 7)
    assert (config.objective.estimator_pos, config.objective.estimator_neg) == ("standard", "standard")
    if "data" not in inspect.signature(RECIPES[name]).parameters:
        with pytest.raises(
            UserError, match=f"data is not an argument of the recipe {name}; arguments: n, seed, estimator; leave"
        ):
            recipe(name, given={"data": "somewhere"})


def test_a_file_goes_over_the_recipe_arguments_over_the_file_and_settings_over_all():
    tree = {"optimizer": {"clip": 1.0, "ema": 0.5}, "batch": {"n": 12, "generated": 5}, "seed": 7}
    config = recipe("digits", given={"n": 4}, tree=tree, settings=["optimizer.clip=none", "batch.generated=3"])
    assert (config.batch.n, config.generated, config.seed) == (4, 3, 7)
    assert (config.optimizer.clip, config.optimizer.ema) == (None, 0.5)
    assert config.optimizer.learning_rate == 1e-3  # the recipe's


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("objective.temperatures=0.1,0.5", (0.1, 0.5)),
        ("objective.temperatures=[0.3]", (0.3,)),
        ("objective.normalization=row", "row"),
        ("engine.compiled=true", True),
        ("cadence.grid_every=none", None),
        (" seed = 9 ", 9),
    ],
)
def test_settings_are_read_as_people_write_them(setting, value):
    config = recipe("toy", settings=[setting])
    for name in setting.partition("=")[0].strip().split("."):
        config = getattr(config, name)
    assert config == value


def test_a_group_of_another_kind_replaces_the_whole_group():
    config = recipe("digits", tree={"generator": {"kind": "drift-dit", "width": 48, "heads": 3}})
    assert config.generator == DriftDiTOptions(width=48, heads=3)
    config = recipe("digits", settings=["encoder.kind=convnet"])
    assert config.encoder == ConvNetOptions()
    assert recipe("digits", tree={"generator": {"width": 48}}).generator.depth == recipe("digits").generator.depth


MISTAKES = {
    "an unknown recipe": ({"name": "mnist"}, "the recipe is 'mnist'"),
    "no equals sign": ({"settings": ["seed"]}, "the setting is 'seed'; must be section.option=value"),
    "no name": ({"settings": ["optimizer.=1"]}, "the setting is 'optimizer.=1'"),
    "an unknown option": ({"settings": ["optimizer.lr=1"]}, "optimizer.lr is unknown; known: learning_rate"),
    "a wrong value": ({"settings": ["batch.n=0"]}, "batch.n is 0; must be at least 1"),
    "a wrong word": (
        {"settings": ["objective.form=both"]},
        "objective.form is 'both'; must be one of separate, product",
    ),
    "options that do not go together": (
        {"settings": ["batch.unconditional=4", "objective.estimator_neg=jackknife"]},
        "objective.estimator_neg is 'jackknife' with batch.unconditional 4",
    ),
    "an argument of no recipe": ({"given": {"epochs": 3}}, "epochs is not an argument of the recipe digits"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        recipe(**({"name": "digits"} | arguments))
    assert "\n" not in str(caught.value)


def test_the_papers_runs_see_as_many_positives_whatever_n():
    """CIFAR-10: 6.24 million per class. Other n than the paper's are rejected."""
    for n in (8, 16, 32, 64):
        config = recipe("cifar10", given={"n": n})
        assert config.positives_seen(config.cadence.steps) == 6_240_000
    with pytest.raises(UserError, match="n is 12; must be one of 8, 16, 32, as in the paper"):
        recipe("cifar100", given={"n": 12})
    ablation = recipe("cifar10", settings=["objective.estimator_neg=standard"])
    assert (ablation.objective.estimator_pos, ablation.objective.estimator_neg) == ("abc", "standard")


SHAPES = {
    "toy": (2,),
    "digits": (1, 8, 8),
    "fashion-mnist": (1, 28, 28),
    "folder": (3, 32, 32),
    "cifar10-cpu": (3, 32, 32),
    "cifar10": (3, 32, 32),
    "cifar100": (3, 32, 32),
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_a_step(name, tmp_path, monkeypatch):
    """Two classes of noise in the shape of its data; networks that must be downloaded are replaced."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    shape = SHAPES[name]
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 256, (16, *shape), generator=generator, dtype=torch.uint8)
    values = values.float() if len(shape) == 1 else values
    samples = Samples(values, torch.arange(16) % 2, ("a", "b"), "noise", len(shape) == 3)
    config = recipe(name, settings=["batch.n=4"])
    if config.encoder.kind in ("dinov2", "efficientnet-lite0"):
        config = dataclasses.replace(config, encoder=ConvNetOptions())
    if config.generator.kind == "drift-dit":  # as wide, less deep: time
        config = dataclasses.replace(config, generator=dataclasses.replace(config.generator, depth=1))
    step = build_setup(config, Parts(), samples, CPU, no_progress).step
    before = [parameter.detach().clone() for parameter in step.state.parameters]
    outcome = step(0)
    assert bool(outcome.finite)
    moved = [not torch.equal(a, b) for a, b in zip(step.state.parameters, before, strict=True)]
    assert any(moved)  # of a transformer only the last layer: gates begin closed
