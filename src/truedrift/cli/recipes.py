"""`truedrift recipes`: list the recipes, or print the configuration of one."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro

from truedrift.errors import require_choice
from truedrift.recipes.overrides import DESCRIPTIONS, RECIPES, recipe


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """List the recipes, or print one of them in full.

    Try it:
      truedrift recipes
      truedrift recipes digits
    """

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Recipe to print as JSON."""

    def prepare(self) -> Callable[[], str]:
        """Check the name."""
        if self.name is not None:
            require_choice("recipe", self.name, RECIPES)
        return _list_recipes if self.name is None else partial(_print_recipe, self.name)


def _list_recipes() -> str:
    width = max(map(len, DESCRIPTIONS)) + 2
    lines = [f"{name:{width}}{description}" for name, description in DESCRIPTIONS.items()]
    return "\n".join((*lines, "", "truedrift train RECIPE trains one; truedrift recipes RECIPE prints it in full"))


def _print_recipe(name: str) -> str:
    return json.dumps(recipe(name).tree(), indent=2)
