"""Steps of recipes on random images, with a temporary cache directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from truedrift.data.samples import Samples
from truedrift.progress import no_progress
from truedrift.seeding import stream
from truedrift.training.config import RunConfig
from truedrift.training.config_checks import validated_config
from truedrift.training.setup import Parts, build_setup
from truedrift.training.step import Step


def random_images(classes: int, per_class: int) -> Samples:
    """Return random uint8 images [classes · per_class, 3, 32, 32] in place of CIFAR."""
    shape = (classes * per_class, 3, 32, 32)
    values = torch.randint(256, shape, generator=stream(0, "benchmark-images"), dtype=torch.uint8)
    labels = torch.arange(classes).repeat_interleave(per_class)
    return Samples(values, labels, tuple(map(str, range(classes))), "noise", flips=True)


def build_step(config: RunConfig, samples: Samples) -> Step:
    """Build the step of that configuration on the CPU."""
    parts = Parts(samples=samples)
    return build_setup(validated_config(config), parts, samples, torch.device("cpu"), no_progress).step


def step_runner(step: Step) -> Callable[[], object]:
    """Return a function that takes the next step at every call."""
    numbers = count()
    return lambda: step(next(numbers))


@contextmanager
def temporary_cache() -> Iterator[Path]:
    """Use an empty directory as the cache, also in child processes."""
    before = os.environ.get("TRUEDRIFT_CACHE")
    with TemporaryDirectory() as directory:
        os.environ["TRUEDRIFT_CACHE"] = directory
        try:
            yield Path(directory)
        finally:
            del os.environ["TRUEDRIFT_CACHE"]
            if before is not None:
                os.environ["TRUEDRIFT_CACHE"] = before
