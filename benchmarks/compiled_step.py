"""A step of the recipe cifar10-cpu: as it is, compiled, and with maps whose channels are not last in memory.

The generator and the encoder have a constant LAYOUT, the memory format of their maps. A variant replaces one of them by
the contiguous format, when the step is built and when it runs. Compiling starts with empty caches; its time is the
first step of that variant minus a later one.

The images and the weights of the encoder are random, which costs the same as real ones. Features of the positives are
cached.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from benchmarks.laps import MarkedStep, mark_parts, time_parts
from benchmarks.results import Result
from benchmarks.steps import build_step, random_images, temporary_cache
from tests.oracles.lite_network import random_weights
from truedrift.encoders import efficientnet_lite0
from truedrift.generators import conv
from truedrift.recipes.recipes import cifar10_cpu
from truedrift.storage import write_tensors
from truedrift.training.config import RunConfig
from truedrift.training.step import StepResult

TITLE = "Step of cifar10-cpu compiled and in other memory formats, 10 classes, n = 96, g = 16, median of five steps"
CLASSES, N, GENERATED = 10, 96, 16


Layout = Callable[[], AbstractContextManager[Any]]
"""A function whose contexts set the memory formats."""


@dataclass(frozen=True)
class VariantStep(MarkedStep):
    """A marked step that runs with its own memory formats."""

    layout: Layout

    def __call__(self, step: int) -> StepResult:
        with self.layout():
            return super().__call__(step)


def contiguous(module: ModuleType) -> Layout:
    """Return the layout in which the maps of that network are contiguous."""
    return lambda: mock.patch.object(module, "LAYOUT", torch.contiguous_format)


def build_variants(config: RunConfig, classes: int) -> dict[str, VariantStep]:
    """Build the step in all variants, with the same positives."""
    samples = random_images(classes, config.batch.n)
    compiled = replace(config, engine=replace(config.engine, compiled=True))
    variants: dict[str, tuple[RunConfig, Layout]] = {
        "as it is": (config, nullcontext),
        "compiled": (compiled, nullcontext),
        "generator contiguous": (config, contiguous(conv)),
        "encoder contiguous": (config, contiguous(efficientnet_lite0)),
    }
    built = {}
    for name, (options, layout) in variants.items():
        with layout():
            step = mark_parts(build_step(options, samples))
        built[name] = VariantStep(**{field.name: getattr(step, field.name) for field in fields(step)}, layout=layout)
    return built


def measure(classes: int = CLASSES, n: int = N, generated: int = GENERATED, repeats: int = 5) -> list[Result]:
    """Measure images per second of every variant, ratios to the step as it is, and the time of compiling."""
    recipe = cifar10_cpu(n=n)
    config = replace(recipe, batch=replace(recipe.batch, generated=generated, labels=None))
    with temporary_cache() as cache, mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor")):
        write_tensors(efficientnet_lite0.weights_file(), random_weights())
        steps = build_variants(config, classes)
        start = time.perf_counter()
        steps["compiled"](0)
        first = time.perf_counter() - start
        seconds = time_parts(steps, repeats=repeats)
    # Ratios of the whole step, and of both passes of the networks that differ.
    totals = {name: sum(parts.values()) for name, parts in seconds.items()}
    per_second = [
        Result(f"{name}: generated images", classes * generated / totals[name], "per second") for name in totals
    ]
    return [
        *per_second,
        Result("compiled / as it is: step", _ratio(totals, "compiled")),
        Result("compiled / as it is: generator", _ratio(_both_passes(seconds, "generator"), "compiled")),
        Result("compiled / as it is: encoder", _ratio(_both_passes(seconds, "encoder"), "compiled")),
        Result("compiling, in the first step", first - totals["compiled"], "s"),
        *(
            Result(f"{network} contiguous / as it is: {part}", _ratio(times, f"{network} contiguous"), "×", "≥", 1)
            for network in ("generator", "encoder")
            for part, times in (("step", totals), (network, _both_passes(seconds, network)))
        ),
    ]


def _both_passes(seconds: Mapping[str, Mapping[str, float]], network: str) -> dict[str, float]:
    """Return the seconds of both passes of a network by variant."""
    return {name: parts[f"{network}, forward"] + parts[f"{network}, backward"] for name, parts in seconds.items()}


def _ratio(seconds: Mapping[str, float], variant: str) -> float:
    return seconds[variant] / seconds["as it is"]
