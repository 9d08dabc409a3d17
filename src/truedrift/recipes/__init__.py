"""Recipes: functions that return a complete `RunConfig`, by name, and the evaluator of a run."""

from truedrift.recipes.evaluator import RunEvaluator, build_evaluator, load_reference_data
from truedrift.recipes.overrides import DESCRIPTIONS, RECIPES, recipe
from truedrift.recipes.recipes import PAPER_FIELD

__all__ = ["DESCRIPTIONS", "PAPER_FIELD", "RECIPES", "RunEvaluator", "build_evaluator", "load_reference_data", "recipe"]
