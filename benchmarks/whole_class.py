"""Steps with many positives: n = 500 per class, or the whole class, against n = 32; the cost of the energy distance.

    digits          real data; n = 133 is the size of the smallest class
    fashion-mnist   random images of its size, which cost the same
    cifar10         DriftDiT-Small, DINOv2-S with random weights, two classes; cached features of positives are random

Windows of `matched` are disjoint blocks where g − 1 divides n, hence n = 133 = 19 · 7, 124 = 4 · 31, 497 = 71 · 7 and
496 = 16 · 31.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from benchmarks.cifar10_step import configuration
from benchmarks.laps import mark_parts, time_parts
from benchmarks.results import Result
from benchmarks.steps import build_step, random_images, step_runner, temporary_cache
from benchmarks.timing import best_window_medians
from truedrift.data.class_batches import Batch
from truedrift.data.samples import Samples
from truedrift.recipes.recipes import digits, fashion_mnist_pixels
from truedrift.seeding import stream
from truedrift.training.batch import Positives
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, load_samples
from truedrift.training.step import Step
from truedrift.training.telemetry import EnergyAverage

TITLE = "Steps with many positives per class, and the energy distance"
FEW, MANY = 32, 500
CIFAR_CLASSES = 2


def measure(windows: int = 3) -> list[Result]:
    """Measure ratios of steps, and the share of field and loss."""
    data, images = load_samples(digits(), Parts()), random_gray_images(10, MANY)
    cases = {
        "digits": (data, digits(), {8: 133, 32: 124}),
        "fashion-mnist": (images, fashion_mnist_pixels(), {8: 497, 32: 496}),
    }
    results = []
    for name, (samples, recipe, sizes) in cases.items():
        for generated, many in sizes.items():
            for matched in (False, True):
                steps = {n: build_step(with_sizes(recipe, n, generated, matched), samples) for n in (FEW, many)}
                label = f"{name}, g = {generated}{', matched' if matched else ''}"
                results += compare(label, steps, windows=windows, repeats=3)
    return [*results, *measure_cifar10(), *measure_energy(data, windows)]


def compare(label: str, steps: dict[int, Step], *, windows: int, repeats: int) -> list[Result]:
    """Return the ratio of the steps, and the share of field and loss in the one with more positives."""
    few, many = steps
    runs = {str(n): step_runner(step) for n, step in steps.items()}
    seconds = best_window_medians(runs, windows=windows, repeats=repeats, warm_up=1)
    parts = time_parts({"many": mark_parts(steps[many])}, repeats=repeats)["many"]
    share = 100 * parts["field and loss"] / sum(parts.values())
    return [
        Result(f"{label}: step with n = {many} / n = {few}", seconds[str(many)] / seconds[str(few)], "×", "≤", 1.3),
        Result(f"{label}: field and loss with n = {many}", share, "% of the step"),
    ]


def measure_cifar10() -> list[Result]:
    """Measure the step of cifar10, whose positives are looked up."""
    samples = random_images(CIFAR_CLASSES, MANY)
    few = random_images(CIFAR_CLASSES, FEW)
    with temporary_cache():
        built = build_step(with_sizes(configuration(cached=False, n=8), FEW, 8, matched=False), few)
    steps = {}
    for n in (FEW, MANY):
        config = replace(built.config, batch=replace(built.config.batch, n=n))
        batches = type(built.positives.batches)(samples.labels, CIFAR_CLASSES, n=n, seed=0, flips=True)
        shape = (2, len(samples), built.objective.layout.size)
        table = torch.randn(shape, generator=stream(0, "benchmark-features"))
        steps[n] = replace(built, config=config, positives=Positives(batches, RandomFeatures(table)))
    return compare(f"cifar10, {CIFAR_CLASSES} classes, g = 8", steps, windows=1, repeats=1)


class RandomFeatures:
    """A table [views, N, F] of features in place of those of an encoder."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def __call__(self, batch: Batch) -> Tensor:
        return self.table[batch.mirrored.long(), batch.indices]


def measure_energy(samples: Samples, windows: int) -> list[Result]:
    """Measure a step of digits with the energy distance, as a run takes it, against a step without."""
    results = []
    for n, generated in ((8, 8), (64, 64), (126, 8)):
        config = with_sizes(digits(), n, generated, matched=False)
        variants = {"without": step_runner(build_step(config, samples)), "with": energy_runner(config, samples)}
        seconds = best_window_medians(variants, windows=windows, repeats=7)
        results.append(
            Result(f"energy distance, digits, n = {n}, g = {generated}: step with / without", ratio(seconds))
        )
    return results


def ratio(seconds: dict[str, float]) -> float:
    """Return the time with the energy distance over that without."""
    return seconds["with"] / seconds["without"]


def energy_runner(config: RunConfig, samples: Samples) -> Callable[[], object]:
    """Return a function that takes the next step and adds its energy distance."""
    step, average, numbers = build_step(config, samples), EnergyAverage(1, torch.device("cpu")), count()
    return lambda: average.add(step(next(numbers)).features.energy())


def with_sizes(recipe: RunConfig, n: int, generated: int, matched: bool) -> RunConfig:
    """Return the recipe with these sizes; matched references need the row normalization."""
    objective = recipe.objective
    if matched:
        objective = replace(objective, matched=True, normalization="row", form="separate")
    return replace(recipe, batch=replace(recipe.batch, n=n, generated=generated), objective=objective)


def random_gray_images(classes: int, per_class: int) -> Samples:
    """Return random uint8 images [classes · per_class, 1, 28, 28] in place of Fashion-MNIST."""
    shape = (classes * per_class, 1, 28, 28)
    values = torch.randint(256, shape, generator=stream(0, "benchmark-images"), dtype=torch.uint8)
    labels = torch.arange(classes).repeat_interleave(per_class)
    return Samples(values, labels, tuple(map(str, range(classes))), "gray noise", flips=False)
