"""Positives kept on disk against positives encoded in every step: the recipe cifar10 with random weights, n = 8.

Features are float32 of both views of an image. Keeping costs one pass of the encoder over the data, which is worth it
after some steps; that number is for the 50 000 images of CIFAR-10, from the time that the images here took.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.cifar10_step import IMAGES_OF_CLASS, configuration
from benchmarks.memory import peak_extra_bytes
from benchmarks.results import Result
from benchmarks.steps import like_cifar, next_of, own_cache, step_of
from benchmarks.timing import best_window_medians

TITLE = "Positives encoded in every step or kept, step of cifar10 with 4 classes, n = 8"
CLASSES = 4
CIFAR10_IMAGES = 50_000


def measure(classes: int = CLASSES, windows: int = 3) -> list[Result]:
    """Time, peak memory and bytes on disk."""
    samples = like_cifar(classes, IMAGES_OF_CLASS)
    with own_cache() as cache:
        live = step_of(configuration(kept=False), samples)
        start = time.perf_counter()
        kept = step_of(configuration(kept=True), samples)
        making = time.perf_counter() - start
        start = time.perf_counter()
        step_of(configuration(kept=True), samples)
        making -= time.perf_counter() - start  # everything but the features is made again
        steps = {"live": next_of(live), "kept": next_of(kept)}
        seconds = best_window_medians(steps, windows=windows, repeats=1, warm_up=1)
        look_up = {"live": lambda: live.positives.at(0), "kept": lambda: kept.positives.at(0)}
        positives = best_window_medians(look_up, windows=windows, repeats=1, warm_up=1)
        peak = {name: peak_extra_bytes(step) for name, step in steps.items()}
        of_image = _bytes(cache) / len(samples)
    paid = making / len(samples) * CIFAR10_IMAGES / (positives["live"] - positives["kept"])
    return [
        Result("step, live / kept", seconds["live"] / seconds["kept"]),
        Result("positives, live / kept", positives["live"] / positives["kept"]),
        Result("peak memory of a step, live / kept", peak["live"] / peak["kept"]),
        Result("peak memory of a step, kept", peak["kept"] / 1e6, "MB"),
        Result("on disk, an image", of_image / 1e3, "kB"),
        Result("on disk, CIFAR-10", of_image * CIFAR10_IMAGES / 1e6, "MB"),
        Result("steps of this size after which keeping has paid, CIFAR-10", paid, "steps"),
        Result("step with kept positives", seconds["kept"], "s"),
    ]


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
