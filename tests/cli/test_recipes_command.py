"""`truedrift recipes`: one line per recipe, or one recipe in full."""

import json
import re

import pytest

from truedrift.cli import main
from truedrift.recipes import DESCRIPTIONS, RECIPES, recipe


def test_every_recipe_has_a_line_with_its_description(capsys):
    assert main(["recipes"]) == 0
    printed = capsys.readouterr()
    *lines, empty, last = printed.out.splitlines()
    assert (printed.err, empty) == ("", "")
    assert [tuple(re.split(" {2,}", line)) for line in lines] == list(DESCRIPTIONS.items())
    assert list(DESCRIPTIONS) == list(RECIPES)
    assert all(len(text) >= 16 for text in DESCRIPTIONS.values())
    assert max(map(len, lines)) <= 120
    assert last == "truedrift train RECIPE trains one; truedrift recipes RECIPE prints it in full"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_in_full_is_the_configuration_that_train_uses(name, capsys):
    assert main(["recipes", name]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert recipe(name, tree=tree) == recipe(name)
    assert main(["train", name, "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out) == tree


def test_an_unknown_recipe_is_an_error_in_one_line(capsys):
    assert main(["recipes", "cats"]) == 2
    choices = ", ".join(map(repr, RECIPES))
    message = f"recipe is 'cats'; must be one of {choices}; choose one of these"
    assert capsys.readouterr().err == f"truedrift: error: {message}\n"


@pytest.mark.parametrize("name", RECIPES)
def test_an_argument_sets_its_option_in_every_recipe(name):
    n = 16 if name in ("cifar10", "cifar100") else 5  # these two have settings for a few n only
    tree = recipe(name, given={"n": n, "seed": 7, "estimator": "standard"}).tree()
    assert (tree["batch"]["n"], tree["seed"]) == (n, 7)
    assert tree["objective"]["estimator_pos"] == tree["objective"]["estimator_neg"] == "standard"
