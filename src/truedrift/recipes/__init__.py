"""Named complete configurations: functions that return a `RunConfig`."""

from truedrift.recipes.overrides import RECIPES, recipe

__all__ = ["RECIPES", "recipe"]
