"""Images of noise in place of data, and a recipe assembled on them, with a cache of its own that is gone afterwards."""

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
from truedrift.training.config import RunConfig, validated_config
from truedrift.training.setup import Parts, build_setup
from truedrift.training.step import Step


def like_cifar(classes: int, of_class: int) -> Samples:
    """Bytes [classes · of_class, 3, 32, 32], which may be mirrored."""
    shape = (classes * of_class, 3, 32, 32)
    values = torch.randint(256, shape, generator=stream(0, "benchmark-images"), dtype=torch.uint8)
    labels = torch.arange(classes).repeat_interleave(of_class)
    return Samples(values, labels, tuple(map(str, range(classes))), "noise", flips=True)


def step_of(config: RunConfig, samples: Samples) -> Step:
    """The step of that configuration on the CPU."""
    parts = Parts(samples=samples)
    return build_setup(validated_config(config), parts, samples, torch.device("cpu"), no_progress).step


def next_of(step: Step) -> Callable[[], object]:
    """Takes the next step at every call."""
    numbers = count()
    return lambda: step(next(numbers))


@contextmanager
def own_cache() -> Iterator[Path]:
    """An empty directory that is the cache, also of processes that are started meanwhile."""
    before = os.environ.get("TRUEDRIFT_CACHE")
    with TemporaryDirectory() as directory:
        os.environ["TRUEDRIFT_CACHE"] = directory
        try:
            yield Path(directory)
        finally:
            del os.environ["TRUEDRIFT_CACHE"]
            if before is not None:
                os.environ["TRUEDRIFT_CACHE"] = before
