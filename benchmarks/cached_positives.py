"""Cached features of positives against features encoded in every step: the recipe cifar10, random weights, n = 8.

The cache holds float32 features of both views of each image. Building it takes one pass of the encoder over the data.
The number of steps after which the cache saves time is extrapolated to the 50,000 images of CIFAR-10.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.cifar10_step import IMAGES_PER_CLASS, configuration
from benchmarks.memory import peak_extra_bytes
from benchmarks.results import Result
from benchmarks.steps import build_step, random_images, step_runner, temporary_cache
from benchmarks.timing import best_window_medians

TITLE = "Positives encoded in every step or cached, step of cifar10 with 4 classes, n = 8"
CLASSES = 4
CIFAR10_IMAGES = 50_000


def measure(classes: int = CLASSES, windows: int = 3) -> list[Result]:
    """Measure time, peak memory and bytes on disk."""
    samples = random_images(classes, IMAGES_PER_CLASS)
    with temporary_cache() as cache:
        encoded = build_step(configuration(cached=False), samples)
        start = time.perf_counter()
        cached = build_step(configuration(cached=True), samples)
        build_seconds = time.perf_counter() - start
        start = time.perf_counter()
        build_step(configuration(cached=True), samples)
        build_seconds -= time.perf_counter() - start  # the same without encoding
        steps = {"encoded": step_runner(encoded), "cached": step_runner(cached)}
        seconds = best_window_medians(steps, windows=windows, repeats=1, warm_up=1)
        lookups = {"encoded": lambda: encoded.positives.at(0), "cached": lambda: cached.positives.at(0)}
        positives = best_window_medians(lookups, windows=windows, repeats=1, warm_up=1)
        peak = {name: peak_extra_bytes(step) for name, step in steps.items()}
        bytes_per_image = _bytes(cache) / len(samples)
    break_even = build_seconds / len(samples) * CIFAR10_IMAGES / (positives["encoded"] - positives["cached"])
    return [
        Result("step, encoded / cached", seconds["encoded"] / seconds["cached"]),
        Result("positives, encoded / cached", positives["encoded"] / positives["cached"]),
        Result("peak memory of a step, encoded / cached", peak["encoded"] / peak["cached"]),
        Result("peak memory of a step, cached", peak["cached"] / 1e6, "MB"),
        Result("on disk, per image", bytes_per_image / 1e3, "kB"),
        Result("on disk, CIFAR-10", bytes_per_image * CIFAR10_IMAGES / 1e6, "MB"),
        Result("steps of this size after which the cache saves time, CIFAR-10", break_even, "steps"),
        Result("step with cached positives", seconds["cached"], "s"),
    ]


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
