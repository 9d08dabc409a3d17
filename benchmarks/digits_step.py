"""Steps a second of the recipe digits, which is what people run first: standard, ABC and ABC-2 on both sides.

A step is what the engine does for one; what a run writes beside it (metrics, pictures, checkpoints) is not in it.
"""

from __future__ import annotations

from benchmarks.laps import marked, splits
from benchmarks.results import Result
from benchmarks.steps import next_of, step_of
from benchmarks.timing import best_window_medians
from truedrift.recipes.recipes import digits
from truedrift.training.setup import Parts, load_samples

TITLE = "Step of digits, MLP and pixels, 10 classes, n = 8"
ESTIMATORS = ("standard", "abc", "abc2")


def measure(windows: int = 12, repeats: int = 31) -> list[Result]:
    """Ratios to the standard centroid, and the field's share of a step."""
    samples = load_samples(digits(), Parts())
    steps = {name: step_of(digits(estimator=name), samples) for name in ESTIMATORS}
    runs = {name: next_of(step) for name, step in steps.items()}
    seconds = best_window_medians(runs, windows=windows, repeats=repeats, warm_up=20)
    parts = splits({"abc": marked(steps["abc"])}, repeats=repeats)["abc"]
    return [
        Result("step, ABC / standard", seconds["abc"] / seconds["standard"]),
        Result("step, ABC-2 / standard", seconds["abc2"] / seconds["standard"]),
        Result("steps, standard", 1 / seconds["standard"], "a second"),
        Result("steps, ABC", 1 / seconds["abc"], "a second"),
        *(Result(f"{part}, ABC", 100 * taken / sum(parts.values()), "% of the step") for part, taken in parts.items()),
    ]
