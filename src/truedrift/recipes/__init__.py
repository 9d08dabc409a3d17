"""Recipes: functions that return a complete `RunConfig`, by name, and the evaluator of a run."""

from typing import TYPE_CHECKING

from truedrift.lazy import lazy_names
from truedrift.recipes.descriptions import DESCRIPTIONS

if TYPE_CHECKING:
    from truedrift.recipes.evaluator import RunEvaluator, build_evaluator, load_reference_data
    from truedrift.recipes.overrides import RECIPES, recipe
    from truedrift.recipes.recipes import PAPER_FIELD

__all__ = ["DESCRIPTIONS", "PAPER_FIELD", "RECIPES", "RunEvaluator", "build_evaluator", "load_reference_data", "recipe"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "truedrift.recipes.evaluator": ("RunEvaluator", "build_evaluator", "load_reference_data"),
        "truedrift.recipes.overrides": ("RECIPES", "recipe"),
        "truedrift.recipes.recipes": ("PAPER_FIELD",),
    },
    __all__,
)
