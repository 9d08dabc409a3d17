"""How long a run takes here, from a few of its steps and a few images before the network that judges it.

Positives are encoded anew, where a run would keep their features; what compares features once they are there is left
out. The features of the data that runs are compared with are counted once for all runs. It is an estimate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from truedrift.data.samples import Samples
from truedrift.evaluation import Extractor, build_extractor, is_kept
from truedrift.experiments.grids.plan import Task
from truedrift.progress import silent
from truedrift.recipes.judging import compared_with
from truedrift.training.assembly import assemble, find_device, samples_of
from truedrift.training.config import RunConfig
from truedrift.training.parts import Parts

WARM_UP, STEPS, IMAGES = 2, 5, 20


def timed(task: Task, device: str, threads: int) -> float:
    """Seconds of the whole run, as one of the workers does it."""
    with _with_threads(threads):
        where = find_device(device)
        samples = samples_of(task.config, Parts())
        training = task.steps * seconds_a_step(task.config, samples, where)
        if task.config.evaluation.extractor is None:
            return training
        image = _seconds_an_image(_extractor(task.config, samples, where), samples)
        return training + evaluations(task.config) * task.config.evaluation.samples * image


def timed_reference(config: RunConfig, device: str, threads: int) -> float:
    """Seconds of the features of the data that runs are compared with; none if they are in the cache."""
    if config.evaluation.extractor is None:
        return 0.0
    with _with_threads(threads):
        data = compared_with(config.data, config.evaluation, seed=config.seed)
        extractor = _extractor(config, data, find_device(device))
        return 0.0 if is_kept(data, extractor) else len(data) * _seconds_an_image(extractor, data)


def evaluations(config: RunConfig) -> int:
    """Of a whole run; the last step is one of them."""
    if config.evaluation.extractor is None:
        return 0
    return math.ceil(config.cadence.epochs / config.cadence.evaluate_every_epochs)


def seconds_a_step(config: RunConfig, samples: Samples, device: torch.device) -> float:
    """The mean of a few."""
    plain = replace(config, engine=replace(config.engine, cached_positives=False))
    step = assemble(plain, Parts(), samples, device, silent).step
    numbers = iter(range(WARM_UP + STEPS))
    return _seconds(lambda: float(step(next(numbers)).gradient_norm), STEPS)  # a number waits for the device


def _extractor(config: RunConfig, samples: Samples, device: torch.device) -> Extractor:
    assert config.evaluation.extractor is not None
    return build_extractor(config.evaluation.extractor, sample_shape=samples.sample_shape, device=device)


def _seconds_an_image(extractor: Extractor, samples: Samples) -> float:
    images = samples.values[:IMAGES]
    return _seconds(lambda: float(extractor(images).features.sum()), 1) / len(images)


def _seconds(act: Callable[[], object], times: int) -> float:
    """The mean of so many calls, after some that are not counted."""
    for _ in range(WARM_UP):
        act()
    start = time.perf_counter()
    for _ in range(times):
        act()
    return (time.perf_counter() - start) / times


@contextmanager
def _with_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
