"""A step of the recipe cifar10 in its parts: DriftDiT-Small, DINOv2-S with random weights, ten classes, n = 8, float32.

Images are noise, which costs what data costs. Features of positives are kept, as the recipe has it, or encoded anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.laps import PARTS, marked, splits
from benchmarks.results import Result
from benchmarks.steps import like_cifar, own_cache, step_of
from truedrift.encoders.dinov2 import DINOv2Options
from truedrift.recipes.recipes import cifar10
from truedrift.training.config import RunConfig

TITLE = "Step of cifar10, DriftDiT-Small and DINOv2-S (random weights), 10 classes, n = 8, median of three steps"
CLASSES = 10
IMAGES_OF_CLASS = 16


def configuration(*, kept: bool, n: int = 8) -> RunConfig:
    """The recipe with random weights in its encoder; positives kept or encoded in every step."""
    recipe = cifar10(n=n)
    engine = replace(recipe.engine, cached_positives=kept)
    return replace(recipe, encoder=DINOv2Options(random_weights=True), engine=engine)


def measure(classes: int = CLASSES, repeats: int = 3) -> list[Result]:
    """Shares of the step, and parts over the field."""
    samples = like_cifar(classes, IMAGES_OF_CLASS)
    with own_cache():
        steps = {name: marked(step_of(configuration(kept=name == "kept"), samples)) for name in ("kept", "live")}
        seconds = splits(steps, repeats=repeats)
    kept, live = seconds["kept"], seconds["live"]
    whole, whole_live, field = sum(kept.values()), sum(live.values()), kept["field and loss"]
    return [
        *(Result(part.replace("positives", "kept positives"), 100 * kept[part] / whole, "%") for part in PARTS),
        Result("generator / field and loss", _both_ways(kept, "generator") / field),
        Result("encoder / field and loss", _both_ways(kept, "encoder") / field),
        Result("optimizer and average / field and loss", kept["optimizer and average"] / field),
        Result("live positives, of a step with them", 100 * live["positives"] / whole_live, "%"),
        Result("live positives / field and loss", live["positives"] / live["field and loss"]),
        Result("step with live positives / with kept ones", whole_live / whole),
        Result("step with kept positives", whole, "s"),
    ]


def _both_ways(seconds: Mapping[str, float], part: str) -> float:
    return seconds[f"{part}, forward"] + seconds[f"{part}, backward"]
