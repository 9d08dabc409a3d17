"""Any value for any field: taken as it is, and then the run can be built, or refused with the field's name."""

import json
import math
import re
from functools import cache
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truedrift.cli.main import main
from truedrift.data.load import NAMES
from truedrift.encoders.catalog import OPTIONS as ENCODERS
from truedrift.errors import UserError
from truedrift.generators.catalog import OPTIONS as GENERATORS
from truedrift.options import to_dict
from truedrift.progress import no_progress
from truedrift.recipes.overrides import RECIPES, recipe
from truedrift.training.config import BatchOptions, RunConfig, run_id, validated_config
from truedrift.training.setup import Parts, build_setup, load_samples, memory_errors_as_user_errors, resolve_device

train_module = import_module("truedrift.training.train")

KINDS = {"generator": GENERATORS, "encoder": ENCODERS}


def leaves(tree, path=()):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def of_kinds():
    """Every option of every kind of generator and encoder, with the kind beside it."""
    for section, kinds in KINDS.items():
        for kind, options in kinds.items():
            yield from ((section, name, kind) for name in to_dict(options()))


PLAIN = [path for path in leaves(recipe("digits").tree()) if path[0] not in KINDS]
FIELDS = [*((path, None) for path in PLAIN), *(((section, name), kind) for section, name, kind in of_kinds())]
IDS = [".".join(path) + (f" of {kind}" if kind else "") for path, kind in FIELDS]
fields = pytest.mark.parametrize(("path", "kind"), FIELDS, ids=IDS)

BOUNDARIES = [
    *(None, True, False, 0, 1, -1, 2, 3, 4, 7, 8, 16, 64, 65_536, 65_537, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 10**30),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -1e-9, 1e-320, 1e-6, 0.9999, 1e6, 1e308, math.nan, math.inf, -math.inf),
    *("", " ", "none", "digits", "two-moons", "folder", "../..", "/", "a\nb", "\0", "\ud800", "τ", "x" * 5000),
    *("standard", "abc", "abc2", "bootstrap", "queue", "row", "product", "gaussian", "patches", "bfloat16", "skip"),
    *([], [1], [0], [-1], [1, 2], [2, 1], [0.1, 0.5], [math.nan], [[]], [None], ["a"], [True], {}, {"kind": "mlp"}),
    *({"a": {"b": []}}, {"": 0}, [1] * 200),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def tree_of(path, kind, value):
    section = {path[-1]: value} if kind is None or path[-1] == "kind" else {"kind": kind, path[-1]: value}
    return section if len(path) == 1 else {path[0]: section}


def value_at(tree, path):
    return tree[path[0]] if len(path) == 1 else tree[path[0]][path[1]]


def plain(value):
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def names_option(message, path):
    """Whether the message names the option, or its section and the option as the second of two that disagree."""
    return ".".join(path) in message or re.search(rf"{path[0]}\.\w+ is .* and {path[-1]} is ", message) is not None


def taken(path, kind, value):
    """The configuration with that value, or None if it was refused with the field's name and in one line."""
    try:
        config = recipe("digits", tree=tree_of(path, kind, value))
    except UserError as error:
        said = str(error)
        assert names_option(said, path)
        assert said.count("; ") >= 2
        assert len(said.splitlines()) == 1
        assert len(said) < 1000
        return None
    assert plain(value_at(config.tree(), path)) == plain(value)
    assert recipe("digits", tree=json.loads(json.dumps(config.tree(), allow_nan=False))) == config
    return config


@fields
def test_boundaries(path, kind):
    results = [taken(path, kind, value) is None for value in BOUNDARIES]
    assert any(results)


@fields
@settings(max_examples=10)
@given(value=JUNK)
def test_junk(path, kind, value):
    taken(path, kind, value)


@cache
def digits():
    return load_samples(recipe("digits"), Parts())


def small(value):
    """Whether it can be tried on any machine."""
    return all(not isinstance(each, int) or each <= 64 for each in (value if isinstance(value, list) else [value]))


BUILT = [
    (path, kind)
    for path, kind in FIELDS
    if kind not in ("dinov2", "efficientnet-lite0") and path[0] not in ("cadence", "optimizer", "condition")
]
"""Encoders that need files are left out, and sections that nothing is built of."""
LITTLE = {
    "mlp": {"kind": "mlp", "width": 8, "depth": 1},
    "drift-dit": {"kind": "drift-dit", "width": 8, "depth": 1, "heads": 2},
    "pixels": {"kind": "pixels"},
    "convnet": {"kind": "convnet", "channels": [2, 2]},
}


@pytest.mark.parametrize(("path", "kind"), BUILT, ids=[".".join(filter(None, (*path, kind))) for path, kind in BUILT])
def test_what_is_taken_can_be_built(path, kind, tmp_path, monkeypatch):
    """Or is refused with the field's name as soon as the data are seen."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    little = {"generator": LITTLE["mlp"]} | ({path[0]: LITTLE[kind]} if kind else {})
    own = value_at(recipe("digits", tree=little).tree(), path)
    accepted = [value for value in BOUNDARIES if small(value) and taken(path, kind, value) is not None]
    built, refusals = 0, []
    for value in [own, *accepted[:1], *accepted[-1:]]:
        section = little.get(path[0], {}) | {path[-1]: value}
        try:
            config = recipe("digits", tree=little | ({path[0]: section} if len(path) > 1 else {path[0]: value}))
            samples = digits() if path[0] != "data" else load_samples(config, Parts())
            build_setup(config, Parts(), samples, resolve_device("cpu"), no_progress)
            built += 1
        except UserError as error:
            refusals.append(str(error))
    assert built >= 1
    assert all(names_option(said, path) or (path[0] == "data" and "data.name" in said) for said in refusals)


TEXTS = ["NaN", "[]", '{"a": 1}', "\0"]
MORE_TEXTS = [
    "",
    "-1",
    "1e999",
    "[[1]]",
    "zzz",
    '"a\\nb"',
    "[" * 3000,
    "[" * 200 + "]" * 200,
    "1" * 5000,
    "{" * 99,
    "é,τ",
]


@fields
def test_the_command_refuses_in_one_line(path, kind, tmp_path, monkeypatch, capsys):
    """Status 2, one line, no file; what is taken goes no further here than to the first step."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_module, "_run", lambda *_: iter(()))
    before = ["--set", f"{path[0]}.kind={kind}"] if kind else []
    refused = 0
    for text in TEXTS + (MORE_TEXTS if path[-1] in ("seed", "temperatures", "root", "sampling", "pooling") else []):
        status = main(["train", "digits", *before, "--set", f"{'.'.join(path)}={text}", "--device", "cpu"])
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        if status == 2:
            refused += 1
            assert line.startswith("truedrift: error: ")
            assert names_option(line, path)
        else:
            assert (status, line) == (1, "truedrift: no step was taken")
        assert said.out == ""
    assert refused >= 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["", "=", "a", "a=1", "batch=3", "batch.n", ".n=3", "batch.n.m=3", "batch..n=3"])
def test_settings_that_are_none(setting, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--set", setting]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.count("; ") >= 2
    assert list(tmp_path.iterdir()) == []


PAIRS = {
    "condition.strength_low": {"condition": {"strength_low": 3, "strength_high": 2}},
    "objective.estimator_neg": {"batch": {"unconditional": 2}, "objective": {"estimator_neg": "jackknife"}},
    "batch.generated": {"batch": {"unconditional": 2, "generated": 1}},
    "condition.strength_high": {"batch": {"unconditional": 2}},
    "objective.normalization": {"objective": {"arithmetic": "abc-release", "normalization": "row"}},
    "objective.feature_scale": {"objective": {"arithmetic": "abc-release"}},
    "objective.estimator_pos": {
        "objective": {"arithmetic": "abc-release", "feature_scale": "standardize-l2", "estimator_pos": "jackknife"}
    },
    "batch.unconditional": {
        "objective": {"arithmetic": "abc-release", "feature_scale": "standardize-l2"},
        "batch": {"unconditional": 2},
        "condition": {"strength_high": 4.0},
    },
    "engine.precision": {
        "objective": {"arithmetic": "abc-release", "feature_scale": "standardize-l2"},
        "engine": {"precision": "float64"},
    },
    "data.root": {"data": {"name": "two-moons", "root": "here"}},
    "data.image_size": {"data": {"name": "mnist", "image_size": 32}},
    "generator.heads": {"generator": {"kind": "drift-dit", "heads": 5}},
    "generator.style_entries": {"generator": {"kind": "drift-dit", "style_entries": 0}},
    "encoder.folder": {"encoder": {"kind": "dinov2", "folder": "x", "random_weights": True}},
}


@pytest.mark.parametrize("name", PAIRS)
def test_fields_that_do_not_agree(name):
    with pytest.raises(UserError, match=r" is .*; .*; ") as caught:
        recipe("digits", tree=PAIRS[name])
    assert names_option(str(caught.value), name.split("."))


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("batch.n=500", "batch.n is 500"),
        ("batch.unconditional=5000", "batch.unconditional is 5000"),
        ('generator={"kind": "drift-dit", "patch": 3}', "generator.patch is 3"),
        (
            'encoder={"kind": "convnet", "channels": [1, 1, 1, 1, 1], "pooling": "patches"}',
            "encoder.pooling is 'patches'",
        ),
        ("data.name=cats", "data.name cats"),
        ("data.name=folder", "data.name folder: no directory was given"),
    ],
)
def test_what_only_the_data_can_tell_is_one_line_too(setting, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--set", "condition.strength_high=4", "--set", setting, "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_consistent_and_has_an_id_of_its_own(name):
    config = recipe(name)
    assert validated_config(config) == config
    assert config.data.name in NAMES
    assert config.recipe == name
    ids = {run_id(recipe(each).tree()) for each in RECIPES} | {run_id(recipe(name, given={"seed": 5}).tree())}
    assert len(ids) == len(RECIPES) + 1
    assert run_id(config.tree()) == run_id(json.loads(json.dumps(config.tree())))


def test_what_does_not_fit_into_memory_is_a_mistake():
    import torch

    with (
        pytest.raises(UserError, match=r"^this does not fit into memory; .*; set engine.micro_batch"),
        memory_errors_as_user_errors(),
    ):
        torch.empty(1 << 55)
    with pytest.raises(UserError, match="free some"), memory_errors_as_user_errors("free some"):
        raise MemoryError
    with pytest.raises(RuntimeError, match="shape"), memory_errors_as_user_errors():
        raise RuntimeError("shape")


def test_defaults_are_consistent():
    assert validated_config(RunConfig()) == RunConfig()
    with pytest.raises(UserError, match=r"^batch.n is 0; "):
        validated_config(RunConfig(batch=BatchOptions(n=0)))
