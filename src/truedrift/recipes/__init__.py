"""Recipes: functions that return a complete `RunConfig`, by name."""

from truedrift.recipes.overrides import RECIPES, recipe

__all__ = ["RECIPES", "recipe"]
