"""Steps per second of the recipe digits, which most people run first: standard, ABC and ABC-2 on both sides.

Metrics, pictures and checkpoints, which a run also writes, are not part of a step.
"""

from __future__ import annotations

from benchmarks.laps import mark_parts, time_parts
from benchmarks.results import Result
from benchmarks.steps import build_step, step_runner
from benchmarks.timing import best_window_medians
from truedrift.recipes.recipes import digits
from truedrift.training.setup import Parts, load_samples

TITLE = "Step of digits, MLP and pixels, 10 classes, n = 8"
ESTIMATORS = ("standard", "abc", "abc2")


def measure(windows: int = 12, repeats: int = 31) -> list[Result]:
    """Measure ratios to the standard centroid, and the share of each part in a step."""
    samples = load_samples(digits(), Parts())
    steps = {name: build_step(digits(estimator=name), samples) for name in ESTIMATORS}
    runs = {name: step_runner(step) for name, step in steps.items()}
    seconds = best_window_medians(runs, windows=windows, repeats=repeats, warm_up=20)
    parts = time_parts({"abc": mark_parts(steps["abc"])}, repeats=repeats)["abc"]
    return [
        Result("step, ABC / standard", seconds["abc"] / seconds["standard"]),
        Result("step, ABC-2 / standard", seconds["abc2"] / seconds["standard"]),
        Result("steps, standard", 1 / seconds["standard"], "per second"),
        Result("steps, ABC", 1 / seconds["abc"], "per second"),
        *(
            Result(f"{part}, ABC", 100 * part_seconds / sum(parts.values()), "% of the step")
            for part, part_seconds in parts.items()
        ),
    ]
