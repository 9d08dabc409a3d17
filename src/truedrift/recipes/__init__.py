"""Named complete configurations: functions that return a `RunConfig`."""

from truedrift.recipes.catalog import RECIPES, recipe

__all__ = ["RECIPES", "recipe"]
