"""A step in one pass against the same step in micro-batches: the recipe folder (a small DriftDiT) with n = 64.

640 samples of ten classes. A micro-batched step computes features twice, once without a graph and once with one, so
that time grows by at most a forward pass: 4/3, where the backward pass takes twice the time of it. Memory of the graph
falls with the micro-batch. The resident set is that of a new process for each, which takes one step.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import torch

from benchmarks.resident import STATUS, growth_bytes
from benchmarks.results import Result
from benchmarks.saved_tensors import peak_saved_bytes
from benchmarks.steps import like_cifar, own_cache, step_of
from benchmarks.timing import best_window_medians
from truedrift.recipes.images import folder
from truedrift.training.draws import draw
from truedrift.training.step import Step

TITLE = "Gradient caching, DriftDiT of width 128 and depth 4 on 32×32, 10 classes, n = 64"
CLASSES, N = 10, 64
MICRO_BATCHES = (256, 64, 16)
THREADS = 2


def measure(classes: int = CLASSES, n: int = N, windows: int = 3) -> list[Result]:
    """Ratios of micro-batched steps to the step in one pass."""
    with own_cache():
        whole = _step(classes, n, None)
        steps = {size: _micro_batched(whole, size) for size in (None, *MICRO_BATCHES)}
        runs = {str(size): partial(step, 0) for size, step in steps.items()}
        seconds = best_window_medians(runs, windows=windows, repeats=1, warm_up=1)
        saved = {size: peak_saved_bytes(runs[str(size)], _weights(step)) for size, step in steps.items()}
        resident = {size: _alone(classes, n, size) for size in steps} if STATUS.exists() else {}
    results = [
        Result("step in one pass", seconds["None"], "s"),
        Result("saved tensors in one pass", saved[None] / 1e6, "MB"),
    ]
    if resident:
        results.append(Result("growth of the resident set in one pass", resident[None] / 1e6, "MB"))
    for size in MICRO_BATCHES:
        results.append(
            Result(f"time, micro-batch {size} / one pass", seconds[str(size)] / seconds["None"], "×", "≤", 4 / 3)
        )
        results.append(Result(f"saved tensors, micro-batch {size} / one pass", saved[size] / saved[None]))
        if resident:
            results.append(
                Result(f"growth of the resident set, micro-batch {size} / one pass", resident[size] / resident[None])
            )
    return results


def _step(classes: int, n: int, micro_batch: int | None) -> Step:
    recipe = folder(n=n)
    engine = replace(recipe.engine, micro_batch=micro_batch)
    return step_of(replace(recipe, engine=engine), like_cifar(classes, n))


def _micro_batched(step: Step, size: int | None) -> Step:
    """The same step, with the same state, in micro-batches of that size."""
    return replace(step, config=replace(step.config, engine=replace(step.config.engine, micro_batch=size)))


def _weights(step: Step) -> list[torch.Tensor]:
    return [*step.state.parameters, *step.encode.parameters()]


def _alone(classes: int, n: int, micro_batch: int | None) -> int:
    """Growth of the resident set over a step, in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_growth, classes, n, micro_batch).result()


def _growth(classes: int, n: int, micro_batch: int | None) -> int:
    torch.set_num_threads(THREADS)
    step = _step(classes, n, micro_batch)
    # One sample first, for what torch loads when it first computes.
    step.features(draw(step.config, step.state.generator, 0).rows(0, 1))
    return growth_bytes(partial(step, 0))
