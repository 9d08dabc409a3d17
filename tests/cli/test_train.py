"""`truedrift train` as a user runs it: what goes over what, what it says, what it refuses."""

import json
import re
from importlib import import_module

import pytest

from truedrift.cli.main import main
from truedrift.recipes.overrides import recipe

main_module = import_module("truedrift.cli.main")

SMALL = (
    "generator.width=16",
    "generator.depth=1",
    "batch.n=3",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=4",
    "cadence.log_every=2",
    "cadence.checkpoint_every=2",
    "cadence.grid_every=none",
    "evaluation.extractor=none",
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def settings(*given):
    return [each for one in given for each in ("--set", one)]


def left(here):
    """Files of the user's; the cache may hold what a judge needs."""
    return sorted(path for path in here.rglob("*") if "cache" not in path.relative_to(here).parts)


def train(capsys, *arguments):
    status = main(["train", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def printed(capsys, *arguments):
    status, out, err = train(capsys, *arguments, "--print-config")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_a_run_says_where_it_is_and_what_comes_next(capsys, here):
    status, out, err = train(capsys, "digits", *settings(*SMALL), "--device", "cpu")
    assert status == 0
    (directory,) = (here / "runs").iterdir()
    assert re.fullmatch(r"digits-[0-9a-f]{12}", directory.name)
    assert err == f"truedrift: digits: 4 steps in runs/{directory.name}\n"
    first, effective, samples, following = out.splitlines()
    assert first == "complete: 4 steps, 12 positives per class seen"
    assert re.fullmatch(
        r"effective positives of 3: [\d.]+, [\d.]+, [\d.]+ \(τ = 0.02, 0.05, 0.2\);  spread [\d.]+", effective
    )
    assert samples == f"samples:  runs/{directory.name}/samples"
    assert following == f"next:     truedrift sample runs/{directory.name}"
    again, out_again, err = train(capsys, "digits", *settings(*SMALL), "--device", "cpu")
    assert (again, out_again) == (0, out)
    assert err == f"truedrift: all 4 steps are already done in runs/{directory.name}\n"
    assert len(list((here / "runs").iterdir())) == 1
    train(capsys, "digits", *settings(*SMALL), "--seed", 1, "--device", "cpu")
    assert len(list((here / "runs").iterdir())) == 2


def test_print_config_does_nothing_else_and_can_be_read_again(capsys, here):
    tree = printed(capsys, "digits", *settings("optimizer.clip=none", "objective.temperatures=0.1,0.5"))
    assert tree["optimizer"]["clip"] is None
    assert tree["objective"]["temperatures"] == [0.1, 0.5]
    assert list(here.iterdir()) == []
    (here / "mine.json").write_text(json.dumps(tree))
    assert printed(capsys, "digits", "--config", "mine.json") == tree
    assert printed(capsys, "toy", "--config", "mine.json") == tree  # it is complete
    assert tree != printed(capsys, "digits")


def test_defaults_then_the_file_then_flags_then_settings(capsys, here):
    (here / "mine.json").write_text(json.dumps({"batch": {"n": 11}, "seed": 3, "optimizer": {"ema": 0.5}}))
    (here / "kind.json").write_text(json.dumps({"generator": {"kind": "drift-dit", "width": 24}}))

    def values(*arguments):
        tree = printed(capsys, "digits", *arguments)
        return tree["batch"]["n"], tree["seed"], tree["optimizer"]["ema"], tree["objective"]["estimator_neg"]

    file = ("--config", "mine.json")
    assert values() == (8, 0, 0.998, "abc")
    assert values(*file) == (11, 3, 0.5, "abc")
    assert values(*file, "--n", 8) == (8, 3, 0.5, "abc")  # even where it is the recipe's own value
    assert values(*file, "--seed", 5, "--estimator", "standard") == (11, 5, 0.5, "standard")
    assert values(*file, "--n", 12, *settings("batch.n=13", "optimizer.ema=0.25")) == (13, 3, 0.25, "abc")
    assert values(*settings("batch.n=13", "batch.n=14")) == (14, 0, 0.998, "abc")
    other = printed(capsys, "digits", "--config", "kind.json")["generator"]
    assert (other["kind"], other["width"], other["depth"]) == ("drift-dit", 24, 8)
    assert "embedding" not in other


def test_data_of_a_flag_goes_over_the_files(capsys, here):
    (here / "toy.json").write_text(json.dumps({"data": {"name": "checkerboard"}}))
    assert printed(capsys, "toy", "--config", "toy.json")["data"]["name"] == "checkerboard"
    assert printed(capsys, "toy", "--config", "toy.json", "--data", "two-moons")["data"]["name"] == "two-moons"


def test_the_config_of_a_run_is_a_config(capsys, here):
    train(capsys, "digits", *settings(*SMALL), "--device", "cpu", "--out", "run")
    assert printed(capsys, "digits", "--config", "run/config.json") == printed(capsys, "digits", *settings(*SMALL))
    status, _, err = train(capsys, "digits", "--config", "run/config.json", "--device", "cpu", "--out", "run")
    assert status == 0
    assert err.startswith("truedrift: all 4 steps are already done")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cats"], r".*'cats'; must be one of 'toy', .*; .*"),
        (["cifar10"], r".*cifar10 is not in the cache .*; .*; run truedrift data fetch cifar10, .*"),
        (["folder"], r".*no directory was given; .*; .*--data DIR.*"),
        (["folder", "--data", "none"], r".*'.*none' does not exist; .*; .*"),
        (["toy", "--data", "three-moons"], r".*'three-moons'; .*; .*"),
        (
            ["digits", "--data", "here"],
            r"data is not an argument of the recipe digits; arguments: n, seed, estimator; leave it out",
        ),
        (["toy", "--n", "0"], r"batch.n is 0; .*; .*"),
        (["digits", "--n", "0"], r"batch\.n is 0; .*; .*"),
        (["digits", "--n", "9999"], r".*batch\.n is 9999.*; .*; .*"),
        (["digits", "--seed", "-1"], r"seed is -1; .*; .*"),
        (["digits", "--device", "tpu"], r".*'tpu'.*; .*; .*"),
        (["digits", "--config", "none.json"], r"configuration 'none.json' cannot be read .*; .*; .*"),
        (["digits", "--config", "."], r"configuration '.' cannot be read .*; .*; .*"),
        (["digits", "--config", "list.json"], r"configuration 'list.json' does not hold options; .*; .*"),
        (["digits", "--config", "text.json"], r"configuration 'text.json' cannot be read .*; .*; .*"),
        (["digits", "--config", "run.json"], r"configuration 'run.json' does not hold options; .*; .*"),
        (["digits", "--config", "odd.json"], r"batch\.m .*; .*; .*"),
        (["digits", "--set", "batch.n"], r".*'batch\.n'.*; .*section\.option=value.*; .*"),
        (
            ["digits", "--out", "text.json", *settings(*SMALL)],
            r"the run directory 'text.json' cannot be created .*; .*; .*",
        ),
        (
            ["digits", "--out", "full", *settings(*SMALL)],
            r".*'full'.*'file'.*config\.json.*; .*; .*",
        ),
    ],
)
def test_every_mistake_is_one_line_and_status_2(capsys, here, arguments, message):
    (here / "full").mkdir()
    (here / "full" / "file").touch()
    texts = {"list": "[1]", "text": "{", "run": '{"schema": 1, "config": 3}', "odd": '{"batch": {"m": 1}}'}
    for name, text in texts.items():
        (here / f"{name}.json").write_text(text)
    before = left(here)
    status, out, err = train(capsys, *arguments)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
    assert left(here) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing from truedrift train"),
        (["digits", "--n", "three"], "three"),
        (["digits", "--estimator", "b"], "b"),
    ],
)
def test_wrong_options_are_explained_by_tyro(capsys, here, arguments, message):
    status, out, err = train(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert left(here) == []


def test_examples_of_the_help_run_as_far_as_their_configuration(capsys):
    assert main(["train", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    examples = [line.split()[1:] for line in lines if line.startswith("  truedrift train ")]
    assert len(examples) >= 4
    for example in examples:
        command = main_module.parse(example)
        given = {"n": command.n, "seed": command.seed, "estimator": command.estimator, "data": command.data}
        assert recipe(command.recipe, given=given, settings=command.set).recipe == command.recipe
