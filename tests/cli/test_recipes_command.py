"""`truedrift recipes`: every recipe in a line, or one in full."""

import json
import re

import pytest

from truedrift.cli.main import main
from truedrift.recipes.overrides import RECIPES, recipe


def test_each_has_a_line(capsys):
    assert main(["recipes"]) == 0
    said = capsys.readouterr()
    *lines, empty, last = said.out.splitlines()
    assert (said.err, empty) == ("", "")
    assert [line.split()[0] for line in lines] == list(RECIPES)
    assert all(re.match(r"[\w-]+ +\S.{15,}", line) and len(line) <= 120 for line in lines)
    assert "truedrift train RECIPE" in last


@pytest.mark.parametrize("name", RECIPES)
def test_one_in_full_is_what_train_would_take(name, capsys):
    assert main(["recipes", name]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert recipe(name, tree=tree) == recipe(name)
    assert main(["train", name, "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out) == tree


def test_one_that_is_none(capsys):
    assert main(["recipes", "cats"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"truedrift: error: recipe is 'cats'; must be one of 'toy', .*; choose one of these", line)


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"n": 5}, ("batch", "n"), 5),
        ({"seed": 7}, ("seed",), 7),
        ({"estimator": "standard"}, ("objective", "estimator_pos"), "standard"),
    ],
)
def test_an_argument_goes_to_its_place_in_every_recipe(given, name, value):
    for each in RECIPES:
        changed = (
            dict(given) if "n" not in given or not each.startswith("cifar10") or each == "cifar10-cpu" else {"n": 16}
        )
        changed = {"n": 16} if each == "cifar100" and "n" in given else changed
        tree = recipe(each, given=changed).tree()
        for part in name:
            tree = tree[part]
        assert tree == changed.get("n", value)
