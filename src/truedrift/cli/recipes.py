"""`truedrift recipes`: list the recipes, or print the configuration of one."""

import json
from collections.abc import Callable
from functools import partial

from truedrift import recipes
from truedrift.cli.options.tools import Recipes
from truedrift.errors import require_choice
from truedrift.recipes import DESCRIPTIONS


def prepare(command: Recipes) -> Callable[[], str]:
    """Check the name."""
    if command.name is not None:
        require_choice("recipe", command.name, DESCRIPTIONS)
    return _list_recipes if command.name is None else partial(_print_recipe, command.name)


def _list_recipes() -> str:
    width = max(map(len, DESCRIPTIONS)) + 2
    lines = [f"{name:{width}}{description}" for name, description in DESCRIPTIONS.items()]
    return "\n".join((*lines, "", "truedrift train RECIPE trains one; truedrift recipes RECIPE prints it in full"))


def _print_recipe(name: str) -> str:
    return json.dumps(recipes.recipe(name).tree(), indent=2)
