"""Every option of a configuration keeps a valid value, and rejects an invalid one with an error that names it."""

import json
import math
import re
from dataclasses import asdict
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truedrift import encoders, generators
from truedrift.cli import main
from truedrift.data import NAMES
from truedrift.distributed import resolve_device
from truedrift.errors import UserError
from truedrift.progress import no_progress
from truedrift.recipes import PAPER_FIELD, RECIPES, recipe
from truedrift.training import (
    BatchOptions,
    Parts,
    RunConfig,
    Training,
    build_setup,
    load_samples,
    run_id,
    setup,
    validated_config,
    warn_of_sizes,
)

KINDS = {"generator": generators.OPTIONS, "encoder": encoders.OPTIONS}


def option_paths(tree, path=()):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from option_paths(value, (*path, name))
        else:
            yield (*path, name)


def options_of_kinds():
    """Yield every option of every kind of generator and encoder, with its kind."""
    for section, kinds in KINDS.items():
        for kind, options in kinds.items():
            yield from (((section, name), kind) for name in asdict(options()))


OPTIONS_WITHOUT_KIND = [path for path in option_paths(recipe("digits").tree()) if path[0] not in KINDS]
OPTIONS = [*((path, None) for path in OPTIONS_WITHOUT_KIND), *options_of_kinds()]
IDS = [".".join(path) + (f" of {kind}" if kind else "") for path, kind in OPTIONS]
every_option = pytest.mark.parametrize(("path", "kind"), OPTIONS, ids=IDS)

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


def build_tree(path, kind, value):
    section = {path[-1]: value} if kind is None or path[-1] == "kind" else {"kind": kind, path[-1]: value}
    return section if len(path) == 1 else {path[0]: section}


def value_at(tree, path):
    return tree[path[0]] if len(path) == 1 else tree[path[0]][path[1]]


def to_lists(value):
    return [to_lists(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def names_option(message, path):
    """Return whether the message names the option, or its section and the option as the second of two that disagree."""
    return (
        ".".join(path) in message
        or re.search(rf"{path[0]}\.\w+ is .* (and {path[-1]} is |with {path[-1]}=)", message) is not None
    )


def read_value(path, kind, value):
    """Return the configuration with that value and None, or None and the error message."""
    try:
        return recipe("digits", tree=build_tree(path, kind, value)), None
    except UserError as error:
        return None, str(error)


def is_clear_error(message, path):
    """Return whether the message is one short line with problem, allowed values and fix, and names the option."""
    one_line = len(message.splitlines()) == 1 and len(message) < 1000
    return one_line and message.count("; ") >= 2 and names_option(message, path)


def is_kept(config, path, value):
    """Return whether the option has that value, and the configuration survives JSON. One number is also a list."""
    restored = recipe("digits", tree=json.loads(json.dumps(config.tree(), allow_nan=False)))
    return to_lists(value_at(config.tree(), path)) in (to_lists(value), [value]) and restored == config


@every_option
def test_boundary_values_are_kept_or_rejected(path, kind):
    rejected = 0
    for value in BOUNDARIES:
        config, message = read_value(path, kind, value)
        assert is_kept(config, path, value) if message is None else is_clear_error(message, path), (value, message)
        rejected += message is not None
    assert rejected > 0


@every_option
@settings(max_examples=10)
@given(value=JUNK)
def test_random_values_are_kept_or_rejected(path, kind, value):
    config, message = read_value(path, kind, value)
    assert is_kept(config, path, value) if message is None else is_clear_error(message, path), message


def test_checks_of_values_can_fail():
    """Negative control of the two tests above."""
    path = ("batch", "n")
    config, message = read_value(path, None, 9)
    assert (is_kept(config, path, 9), is_kept(config, path, 8), message) == (True, False, None)
    config, message = read_value(path, None, 0)
    assert (config, is_clear_error(message, path)) == (None, True)
    assert not is_clear_error(message, ("batch", "generated"))
    assert not is_clear_error(message.replace("; ", "\n"), path)
    assert not is_clear_error(f"{message}\nTraceback", path)


@cache
def load_digits():
    return load_samples(recipe("digits"), Parts())


def is_small(value):
    """Return whether a run with this value can be built on any machine."""
    numbers = value if isinstance(value, list) else [value]
    return all(not isinstance(number, int) or number <= 64 for number in numbers)


BUILT_OPTIONS = [
    (path, kind)
    for path, kind in OPTIONS
    if kind not in ("dinov2", "efficientnet-lite0", "own") and path[0] not in ("cadence", "optimizer", "condition")
]
"""Options of encoders that need files are left out, and sections from which nothing is built."""
SMALL_SECTIONS = {
    "mlp": {"kind": "mlp", "width": 8, "depth": 1},
    "conv": {"kind": "conv", "widths": [4, 2], "noise": 4, "condition": 4, "embedding": 2},
    "unet": {"kind": "unet", "width": 2, "multipliers": [1, 2], "blocks": 1, "condition": 4},
    "drift-dit": {"kind": "drift-dit", "width": 8, "depth": 1, "heads": 2},
    "pixels": {"kind": "pixels"},
    "convnet": {"kind": "convnet", "channels": [2, 2]},
}


@pytest.mark.parametrize(
    ("path", "kind"), BUILT_OPTIONS, ids=[".".join(filter(None, (*path, kind))) for path, kind in BUILT_OPTIONS]
)
def test_accepted_values_can_be_built(path, kind, tmp_path, monkeypatch):
    """Or they are rejected with the name of the option when the data are loaded."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    small = {"generator": SMALL_SECTIONS["mlp"]} | ({path[0]: SMALL_SECTIONS[kind]} if kind else {})
    default = value_at(recipe("digits", tree=small).tree(), path)
    accepted = [value for value in BOUNDARIES if is_small(value) and read_value(path, kind, value)[1] is None]
    built, messages = 0, []
    for value in [default, *accepted[:1], *accepted[-1:]]:
        section = small.get(path[0], {}) | {path[-1]: value}
        try:
            config = recipe("digits", tree=small | ({path[0]: section} if len(path) > 1 else {path[0]: value}))
            samples = load_digits() if path[0] != "data" else load_samples(config, Parts())
            build_setup(config, Parts(), samples, resolve_device("cpu"), no_progress)
            built += 1
        except UserError as error:
            messages.append(str(error))
    assert built >= 1
    assert all(names_option(text, path) or (path[0] == "data" and "data.name" in text) for text in messages)


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


@every_option
def test_command_rejects_values_in_one_line(path, kind, tmp_path, monkeypatch, capsys):
    """Status 2, one line, no file. The steps of accepted values are not taken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Training, "reports", lambda *_, **__: iter(()))
    before = ["--set", f"{path[0]}.kind={kind}"] if kind else []
    rejected = 0
    for text in TEXTS + (MORE_TEXTS if path[-1] in ("seed", "temperatures", "root", "sampling", "pooling") else []):
        status = main(["train", "digits", *before, "--set", f"{'.'.join(path)}={text}", "--device", "cpu"])
        output = capsys.readouterr()
        (line,) = output.err.splitlines()
        if status == 2:
            rejected += 1
            assert line.startswith("truedrift: error: ")
            assert names_option(line, path)
        else:
            assert (status, line) == (1, "truedrift: no step was taken")
        assert output.out == ""
    assert rejected >= 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["", "=", "a", "a=1", "batch=3", "batch.n", ".n=3", "batch.n.m=3", "batch..n=3"])
def test_malformed_setting_is_rejected_in_one_line(setting, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--set", setting]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.count("; ") >= 2
    assert list(tmp_path.iterdir()) == []


def paper_digits(tree=None, settings=()):
    """Return the recipe digits with the paper's field and n = 8."""
    merged = {"batch": {"n": 8}, **(tree or {})}
    for section, options in PAPER_FIELD.items():
        merged[section] = {**options, **merged.get(section, {})}
    return recipe("digits", tree=merged, settings=settings)


CONFLICTS = {
    "objective.share_normalization": {
        "objective": {
            "arithmetic": "abc-release",
            "feature_scale": "standardize-l2",
            "share_normalization": "map",
        }
    },
    "encoders[0]": {"encoder": {"kind": "pixels"}, "encoders": [{"kind": "pixels"}]},
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


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflicting_options_are_rejected(name):
    with pytest.raises(UserError, match=r" is .*; .*; ") as caught:
        paper_digits(tree=CONFLICTS[name])
    assert names_option(str(caught.value), name.split("."))


@pytest.mark.parametrize(
    ("setting", "message"),
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
def test_conflict_with_the_data_is_one_line(setting, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--set", "condition.strength_high=4", "--set", setting, "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_valid_and_has_its_own_id(name):
    config = recipe(name)
    assert validated_config(config) == config
    assert config.data.name in NAMES
    assert config.recipe == name
    ids = {run_id(recipe(other).tree()) for other in RECIPES} | {run_id(recipe(name, given={"seed": 5}).tree())}
    assert len(ids) == len(RECIPES) + 1
    assert run_id(config.tree()) == run_id(json.loads(json.dumps(config.tree())))


def test_lack_of_memory_is_a_user_error():
    with (
        pytest.raises(UserError, match=r"^this does not fit into memory; .*; set engine.micro_batch"),
        setup.memory_errors_as_user_errors(),
    ):
        torch.empty(1 << 55)
    with pytest.raises(UserError, match="free some"), setup.memory_errors_as_user_errors("free some"):
        raise MemoryError
    with pytest.raises(RuntimeError, match="shape"), setup.memory_errors_as_user_errors():
        raise RuntimeError("shape")


def test_default_configuration_is_valid():
    assert validated_config(RunConfig()) == RunConfig()
    with pytest.raises(UserError, match=r"^batch.n is 0; "):
        validated_config(RunConfig(batch=BatchOptions(n=0)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("optimizer.schedule=cosine", "optimizer.warmup_steps=10", "cadence.epochs=2", "cadence.steps_per_epoch=5"),
            r"^optimizer.warmup_steps is 10 with optimizer.schedule cosine and 10 steps; must be below the number",
        ),
        (("optimizer.more_ema=0.5,0.9,0.5",), r"^optimizer.more_ema contains 0.5, which is given twice or is "),
        (("optimizer.ema=0.9", "optimizer.more_ema=[0.9]"), r"^optimizer.more_ema contains 0.9, .*; leave it out"),
        (
            ("condition.strength_one_fraction=1", "batch.unconditional=4", "objective.matched=false"),
            r"^condition.strength_one_fraction is 1 with batch.unconditional 4; must be below 1",
        ),
    ],
)
def test_options_of_the_optimizer_and_the_strength_must_agree(settings, message):
    with pytest.raises(UserError, match=message):
        recipe("digits", settings=settings)


def test_positives_seen_with_some_classes():
    config = recipe("digits", given={"n": 8}, settings=("batch.labels=3",))
    assert config.classes_per_step(10) == 3
    assert [config.positives_seen(step, 10) for step in (0, 1, 10)] == [0, 2, 24]
    every = recipe("digits", given={"n": 8})
    assert every.classes_per_step(10) == 10
    assert every.positives_seen(7, 10) == every.positives_seen(7) == 56


# ---- Unequal numbers of positives and negatives ----

GUIDED = "condition.strength_high=4"
ROW = ("objective.normalization=row", "objective.form=separate")
HARMLESS = "this did no harm on images: on digits with 126 positives and 8 generated samples the Fréchet distance is "
TOO_WIDE = "on digits with 126 positives and 8 generated samples the Fréchet distance is 1.07 instead of 0.28, because "
UNKNOWN = "the cost on images has not been measured; "
UNEQUAL = {
    "more positives": (("batch.n=35", "batch.generated=8"), "35 positives and 7 negatives", HARMLESS),
    "fewer positives": (("batch.n=4", "batch.generated=16"), "4 positives and 15 negatives", UNKNOWN),
    "row": (("batch.n=35", "batch.generated=8", *ROW), "35 positives and 7 negatives", TOO_WIDE),
    "fewer positives, row": (("batch.n=4", "batch.generated=16", *ROW), "4 positives and 15 negatives", UNKNOWN),
    "fresh": (("batch.n=16", "batch.fresh_negatives=8"), "16 positives and 8 fresh negatives", UNKNOWN),
    "sinkhorn": (
        ("batch.n=14", "batch.generated=8", "objective.normalization=sinkhorn", "objective.form=separate"),
        "14 positives and 7 negatives",
        UNKNOWN,
    ),
    "published": (
        (
            "batch.n=16",
            "batch.generated=8",
            "objective.arithmetic=abc-release",
            "objective.feature_scale=standardize-l2",
        ),
        "16 positives and 7 negatives",
        UNKNOWN,
    ),
    "one negative": (("batch.n=16", "batch.generated=2"), "16 positives and 1 negative", HARMLESS),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_warning_of_unequal_sides_says_what_it_costs_and_its_advice_removes_it(name):
    given_settings, sides, cost = UNEQUAL[name]
    warning = warn_of_sizes(paper_digits(settings=given_settings))
    assert warning.startswith(f"with {sides} per sample the field is not zero at equal distributions: {cost}")
    _, advice = warning.split("; set ")
    if name in ("published", "one negative"):
        assert advice == "batch.n and batch.generated to the same number"
        return
    for alternative in advice.split(", or "):
        fixed = paper_digits(settings=(*given_settings, *alternative.split(" with ")))
        assert warn_of_sizes(fixed) is None


def test_no_warning_for_equal_sides_guidance_and_the_recipes_of_the_paper():
    quiet = [
        paper_digits(),
        *(recipe(name) for name in RECIPES),
        paper_digits(settings=("batch.n=32", "batch.fresh_negatives=32")),
        paper_digits(settings=("batch.n=7", "batch.generated=8", *ROW)),
        paper_digits(settings=("batch.n=35", "batch.generated=8", "objective.matched=true", *ROW)),
        paper_digits(settings=("batch.n=32", "batch.generated=8", "batch.unconditional=4", GUIDED)),
        *(recipe(name, given={"n": n}) for name in ("cifar10", "cifar100") for n in (8, 16, 32)),
    ]
    assert [warn_of_sizes(config) for config in quiet] == [None] * len(quiet)


def test_warning_of_windows_that_overlap():
    """Blocks, all subsets without one reference, and fewer positives than negatives are not reported."""

    def warning(n, *settings):
        return warn_of_sizes(recipe("digits", given={"n": n}, settings=("batch.generated=8", *settings)))

    assert warning(100) == (
        "100 positives are not a multiple of the 7 negatives: windows overlap, and a step takes longer; set batch.n=98"
    )
    assert [warning(n) for n in (98, 7, 8, 5)] == [None] * 4
    assert warning(100, "batch.fresh_negatives=64").endswith("set batch.n=64")


def test_message_of_a_fixed_arithmetic_names_everything_to_set():
    with pytest.raises(UserError) as caught:
        recipe("digits", settings=["objective.arithmetic=official"])
    assert str(caught.value) == (
        "objective.normalization is 'row' with objective.arithmetic official; must be 'bidirectional'; set "
        "objective.normalization=bidirectional objective.form=product objective.estimator_pos=standard "
        "objective.estimator_neg=standard objective.share_normalization=map objective.matched=false, "
        "or set objective.arithmetic=stable"
    )
    fix = str(caught.value).split("; set ")[1].split(", or")[0]
    assert recipe("digits", settings=["objective.arithmetic=official", *fix.split()]).objective.arithmetic == "official"
