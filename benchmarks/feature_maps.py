"""A step with feature maps: convolutional generator, EfficientNet-Lite0 at 64 px, every location a drift problem.

The images are random, which costs the same as real data. The encoder has the weights of `truedrift data fetch
efficientnet-lite0` if they are in the cache, and random ones otherwise, which cost the same. Features of the positives
are cached. The bound is for all 340 locations without guidance, whose negatives are 16 columns more. The recipe
cifar10-cpu itself has guidance, one class per step, 96 px, pyramids and 16 locations per map and statistic.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.laps import mark_parts, time_parts
from benchmarks.results import Result
from benchmarks.steps import build_step, random_images, temporary_cache
from tests.oracles.lite_network import random_weights
from truedrift.encoders import efficientnet_lite0
from truedrift.recipes.recipes import cifar10_cpu
from truedrift.storage import write_tensors
from truedrift.training.config import RunConfig

TITLE = "Step with feature maps, EfficientNet-Lite0 at 64 px, 10 classes, n = 64, g = 16"
CLASSES, IMAGES_PER_CLASS = 10, 96


def configuration(*, locations: int | None, pooling: str = "locations", guided: bool = False) -> RunConfig:
    """Return the recipe cifar10-cpu with n = 64 and g = 16, all classes in every step, and no pixels."""
    recipe = cifar10_cpu(n=64)
    return replace(
        recipe,
        encoder=replace(recipe.encoder, image_size=64, pooling=pooling),
        encoders=(),
        batch=replace(recipe.batch, generated=16, labels=None, unconditional=16 if guided else 0),
        condition=recipe.condition if guided else replace(recipe.condition, strength_low=1.0, strength_high=1.0),
        evaluation=replace(recipe.evaluation, strength=None),
        objective=replace(recipe.objective, locations=locations, matched=False, pixels=False),
    )


def measure(repeats: int = 5) -> list[Result]:
    """Measure the share of field and loss: all locations, 16 per map, the pyramid, and the recipe as it is."""
    samples = random_images(CLASSES, IMAGES_PER_CLASS)
    variants = {
        "all 340 locations": configuration(locations=None),
        "all 340 locations, guided": configuration(locations=None, guided=True),
        "16 locations per map": configuration(locations=16),
        "pyramid, 16 per map and statistic": configuration(locations=16, pooling="pyramid"),
        "cifar10-cpu": cifar10_cpu(),
    }
    with temporary_cache():
        write_tensors(efficientnet_lite0.weights_file(), random_weights())
        steps = {name: mark_parts(build_step(config, samples)) for name, config in variants.items()}
        seconds = time_parts(steps, repeats=repeats)
    results = []
    for name, parts in seconds.items():
        total = sum(parts.values())
        bound = ("≤", 15) if name == "all 340 locations" else (None, None)
        results += [
            Result(f"{name}: field and loss", 100 * parts["field and loss"] / total, "% of the step", *bound),
            Result(f"{name}: positives", 100 * parts["positives"] / total, "% of the step"),
            Result(f"{name}: generated images", variants[name].classes_per_step(CLASSES) * 16 / total, "per second"),
        ]
    return results
