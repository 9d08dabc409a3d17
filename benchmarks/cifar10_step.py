"""Parts of a step of the recipe cifar10: DriftDiT-Small, DINOv2-S with random weights, ten classes, n = 8, float32.

The images are random, which costs the same as real data. Features of positives are cached, as in the recipe, or encoded
in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.laps import PARTS, mark_parts, time_parts
from benchmarks.results import Result
from benchmarks.steps import build_step, random_images, temporary_cache
from truedrift.encoders.dinov2 import DINOv2Options
from truedrift.recipes.recipes import cifar10
from truedrift.training.config import RunConfig

TITLE = "Step of cifar10, DriftDiT-Small and DINOv2-S (random weights), 10 classes, n = 8, median of three steps"
CLASSES = 10
IMAGES_PER_CLASS = 16


def configuration(*, cached: bool, n: int = 8) -> RunConfig:
    """Return the recipe with random weights in its encoder."""
    recipe = cifar10(n=n)
    engine = replace(recipe.engine, cached_positives=cached)
    return replace(recipe, encoder=DINOv2Options(random_weights=True), engine=engine)


def measure(classes: int = CLASSES, repeats: int = 3) -> list[Result]:
    """Measure the share of each part in the step, and ratios of parts to field and loss."""
    samples = random_images(classes, IMAGES_PER_CLASS)
    with temporary_cache():
        steps = {
            name: mark_parts(build_step(configuration(cached=name == "cached"), samples))
            for name in ("cached", "encoded")
        }
        seconds = time_parts(steps, repeats=repeats)
    cached, encoded = seconds["cached"], seconds["encoded"]
    total, total_encoded, field = sum(cached.values()), sum(encoded.values()), cached["field and loss"]
    return [
        *(Result(part.replace("positives", "cached positives"), 100 * cached[part] / total, "%") for part in PARTS),
        Result("generator / field and loss", _both_passes(cached, "generator") / field),
        Result("encoder / field and loss", _both_passes(cached, "encoder") / field),
        Result("optimizer and average / field and loss", cached["optimizer and average"] / field),
        Result("encoded positives, share of their step", 100 * encoded["positives"] / total_encoded, "%"),
        Result("encoded positives / field and loss", encoded["positives"] / encoded["field and loss"]),
        Result("step with encoded positives / with cached ones", total_encoded / total),
        Result("step with cached positives", total, "s"),
    ]


def _both_passes(seconds: Mapping[str, float], part: str) -> float:
    return seconds[f"{part}, forward"] + seconds[f"{part}, backward"]
