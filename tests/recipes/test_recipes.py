"""Recipes by name, their overrides, and one training step of each."""

import dataclasses
import inspect
import json

import pytest
import torch
from oracles.small_run import CPU

from truedrift.data import Samples
from truedrift.encoders import ConvNetOptions
from truedrift.errors import UserError
from truedrift.generators import DriftDiTOptions
from truedrift.options import from_dict
from truedrift.progress import no_progress
from truedrift.recipes import DESCRIPTIONS, PAPER_FIELD, RECIPES, recipe
from truedrift.training import Parts, RunConfig, build_setup, run_id


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_survives_json(name):
    config = recipe(name)
    assert isinstance(config, RunConfig)
    assert config.recipe == name
    assert from_dict(RunConfig, json.loads(json.dumps(config.tree()))) == config
    assert recipe(name) == config
    assert DESCRIPTIONS[name]


def test_run_ids_differ():
    trees = [recipe(name).tree() for name in RECIPES] + [recipe("digits", given={"seed": 1}).tree()]
    assert len({run_id(tree) for tree in trees}) == len(trees)


@pytest.mark.parametrize("name", RECIPES)
def test_arguments_set_options_and_none_keeps_the_default(name):
    given = {"n": 16, "seed": 7, "estimator": "standard"}
    config = recipe(name, given=given | {"data": None})
    assert (config.batch.n, config.seed) == (16, 7)
    assert (config.objective.estimator_pos, config.objective.estimator_neg) == ("standard", "standard")
    if "data" not in inspect.signature(RECIPES[name]).parameters:
        with pytest.raises(
            UserError, match=f"data is not an argument of the recipe {name}; arguments: n, seed, estimator; leave"
        ):
            recipe(name, given={"data": "somewhere"})


def test_order_of_overrides_is_tree_then_arguments_then_settings():
    tree = {"optimizer": {"clip": 1.0, "ema": 0.5}, "batch": {"n": 12, "generated": 5}, "seed": 7}
    config = recipe("digits", given={"n": 4}, tree=tree, settings=["optimizer.clip=none", "batch.generated=3"])
    assert (config.batch.n, config.generated, config.seed) == (4, 3, 7)
    assert (config.optimizer.clip, config.optimizer.ema) == (None, 0.5)
    assert config.optimizer.learning_rate == 1e-3  # the value of the recipe


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
def test_setting_values_are_parsed(setting, value):
    config = recipe("toy", settings=[setting])
    for name in setting.partition("=")[0].strip().split("."):
        config = getattr(config, name)
    assert config == value


def test_section_of_another_kind_replaces_the_whole_section():
    config = recipe("digits", tree={"generator": {"kind": "drift-dit", "width": 48, "heads": 3}})
    assert config.generator == DriftDiTOptions(width=48, heads=3)
    config = recipe("digits", settings=["encoder.kind=convnet"])
    assert config.encoder == ConvNetOptions()
    assert recipe("digits", tree={"generator": {"width": 48}}).generator.depth == recipe("digits").generator.depth


ERRORS = {
    "an unknown recipe": ({"name": "mnist"}, "the recipe is 'mnist'"),
    "no equals sign": ({"settings": ["seed"]}, "the setting is 'seed'; must be section.option=value"),
    "no name": ({"settings": ["optimizer.=1"]}, "the setting is 'optimizer.=1'"),
    "an unknown option": ({"settings": ["optimizer.lr=1"]}, "optimizer.lr is unknown; known: learning_rate"),
    "a wrong value": ({"settings": ["batch.n=0"]}, "batch.n is 0; must be at least 1"),
    "a wrong word": (
        {"settings": ["objective.form=both"]},
        "objective.form is 'both'; must be one of separate, product",
    ),
    "conflicting options": (
        {"settings": ["batch.unconditional=4", "objective.matched=false", "objective.estimator_neg=jackknife"]},
        "objective.estimator_neg is 'jackknife' with batch.unconditional 4",
    ),
    "an unknown argument": ({"given": {"epochs": 3}}, "epochs is not an argument of the recipe digits"),
}


@pytest.mark.parametrize(("arguments", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_are_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        recipe(**({"name": "digits"} | arguments))
    assert "\n" not in str(caught.value)


def test_own_recipes_are_matched_in_disjoint_windows():
    """n is a multiple of the g − 1 negatives of a sample. The recipes of the paper keep its field."""
    for name in RECIPES:
        config = recipe(name)
        if name in ("cifar10", "cifar100"):
            assert recipe(name, tree=PAPER_FIELD) == config
        elif name in ("fashion-mnist", "cifar10-cpu", "cifar10-own", "folder"):
            assert (config.objective.matched, config.objective.normalization) == (False, "bidirectional")
        else:
            assert config.objective.matched
            assert config.batch.n % (config.generated - 1) == 0


def test_paper_runs_see_the_same_number_of_positives_for_every_n():
    """CIFAR-10: 6.24 million per class. Other n than the paper's are rejected."""
    for n in (8, 16, 32, 64):
        config = recipe("cifar10", given={"n": n})
        assert config.positives_seen(config.cadence.steps) == 6_240_000
    with pytest.raises(UserError, match="n is 12; must be one of 8, 16, 32, as in the paper"):
        recipe("cifar100", given={"n": 12})
    ablation = recipe("cifar10", settings=["objective.estimator_neg=standard"])
    assert (ablation.objective.estimator_pos, ablation.objective.estimator_neg) == ("abc", "standard")


SHAPES = {
    "array": (2,),
    "toy": (2,),
    "digits": (1, 8, 8),
    "fashion-mnist": (1, 28, 28),
    "fashion-mnist-pixels": (1, 28, 28),
    "folder": (3, 32, 32),
    "cifar10-cpu": (3, 32, 32),
    "cifar10-own": (3, 32, 32),
    "cifar10": (3, 32, 32),
    "cifar100": (3, 32, 32),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_takes_a_step(name, tmp_path, monkeypatch):
    """The data are two classes of noise in the shape of the recipe; networks that must be downloaded are replaced."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    shape = SHAPES[name]
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 256, (16, *shape), generator=generator, dtype=torch.uint8)
    values = values.float() if len(shape) == 1 else values
    samples = Samples(values, torch.arange(16) % 2, ("a", "b"), "noise", len(shape) == 3)
    config = recipe(name, settings=["batch.n=4"])
    if config.encoder.kind in ("dinov2", "efficientnet-lite0", "own"):
        config = dataclasses.replace(config, encoder=ConvNetOptions(pooling=config.encoder.pooling))
    if config.generator.kind == "drift-dit":  # fewer layers, to save time
        config = dataclasses.replace(config, generator=dataclasses.replace(config.generator, depth=1))
    step = build_setup(config, Parts(), samples, CPU, no_progress).step
    before = [parameter.detach().clone() for parameter in step.state.parameters]
    outcome = step(0)
    assert bool(outcome.finite)
    changed = [not torch.equal(a, b) for a, b in zip(step.state.parameters, before, strict=True)]
    assert any(changed)  # only the last layer of a transformer, whose gates start at 0


def test_length_of_the_run_follows_the_classes():
    def steps(*classes, **options):
        return recipe("cifar10-cpu", given={"classes": classes or None}, **options).cadence.steps

    assert [steps(), steps("automobile"), steps("automobile", "horse", "ship")] == [16_500, 3_000, 6_000]
    assert recipe("cifar10-cpu", given={"classes": ("cat",)}).data.classes == ("cat",)
    assert steps("cat", settings=["cadence.epochs=2"]) == 200
    assert steps("cat", tree={"cadence": {"epochs": 3}}) == 300


def test_several_classes_are_guided(tmp_path):
    for name in ("car", "horse", ".hidden"):
        (tmp_path / name).mkdir()
    for given, guided, steps in (
        ({"data": str(tmp_path)}, True, 4_500),
        ({"data": str(tmp_path), "classes": ("car",)}, False, 3_000),
        ({"data": str(tmp_path / "car")}, False, 3_000),
        ({"data": str(tmp_path / "missing")}, False, 3_000),
    ):
        config = recipe("folder", given=given)
        assert (config.batch.unconditional > 0) is guided, given
        assert (config.condition.strength_high > 1) is guided, given
        assert config.sample_strength == (2 if guided else 1), given
        assert config.cadence.steps == steps, given
    assert recipe("cifar10-cpu").batch.unconditional > 0
    assert recipe("cifar10-cpu", given={"classes": ("cat",)}).batch.unconditional == 0


def test_every_recipe_takes_classes():
    config = recipe("digits", given={"classes": ("3", "7")})
    assert (config.data.classes, config.cadence) == (("3", "7"), recipe("digits").cadence)


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("optimizer.more_ema=0.9", lambda config: config.optimizer.more_ema == (0.9,)),
        ("objective.temperatures=1", lambda config: config.objective.temperatures == (1.0,)),
    ],
)
def test_one_number_is_a_list(setting, found):
    assert found(recipe("digits", settings=[setting]))
