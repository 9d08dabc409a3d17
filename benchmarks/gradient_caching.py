"""A step in one pass against the same step in micro-batches: the recipe folder (a small DriftDiT) with n = 64.

640 samples of ten classes. A micro-batched step computes features twice, once without a graph and once with one. A
backward pass costs two forward passes of a generator, but one of a frozen encoder, whose weights need no gradient: with
forward costs G and E, arithmetic grows by (G + E)/(3G + 2E), a third for pixels, up to a half for a large encoder.
Memory of the graph falls with the micro-batch. The resident set is measured in a new process that takes one step.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.resident import STATUS, growth_bytes
from benchmarks.results import Result
from benchmarks.saved_tensors import peak_saved_bytes
from benchmarks.steps import build_step, random_images, temporary_cache
from benchmarks.timing import best_window_medians
from truedrift.encoders.base import PixelsOptions
from truedrift.encoders.convnet import ConvNetOptions
from truedrift.recipes.recipes import folder
from truedrift.training.batch import draw_inputs
from truedrift.training.step import Step

TITLE = "Gradient caching, DriftDiT of width 128 and depth 4 on 32×32, 10 classes, n = 64"
CLASSES, N = 10, 64
MICRO_BATCHES = (64, 16)
ENCODERS = {"convnet": ConvNetOptions(), "pixels": PixelsOptions()}
THREADS = 2


def measure(classes: int = CLASSES, n: int = N, windows: int = 3) -> list[Result]:
    """Measure ratios of steps in micro-batches to the step in one pass."""
    with temporary_cache():
        return [
            *_times("pixels", classes, n, windows, bound=1.333),
            *_times("convnet", classes, n, windows, bound=None),
            *_memory("convnet", classes, n),
        ]


def _times(encoder: str, classes: int, n: int, windows: int, bound: float | None) -> list[Result]:
    """Measure time and arithmetic. The bound applies to the larger micro-batch."""
    whole = _step(encoder, classes, n, None)
    steps = {size: partial(_with_micro_batch(whole, size), 0) for size in (None, *MICRO_BATCHES)}
    operations = {size: _operations(run) for size, run in steps.items()}
    seconds = best_window_medians(
        {str(size): run for size, run in steps.items()}, windows=windows, repeats=1, warm_up=0
    )
    results = [Result(f"{encoder}: step in one pass", seconds["None"], "s")]
    for size in MICRO_BATCHES:
        ratio, wanted = seconds[str(size)] / seconds["None"], bound if size == MICRO_BATCHES[0] else None
        results.append(
            Result(
                f"{encoder}: time, micro-batch {size} / one pass", ratio, "×", None if wanted is None else "≤", wanted
            )
        )
    ratio = operations[MICRO_BATCHES[0]] / operations[None]
    return [*results, Result(f"{encoder}: arithmetic, micro-batches / one pass", ratio)]


def _memory(encoder: str, classes: int, n: int) -> list[Result]:
    """Measure saved tensors, and the resident set on Linux."""
    whole = _step(encoder, classes, n, None)
    sizes = (None, *MICRO_BATCHES)
    weights = [*whole.state.parameters, *whole.encode.parameters()]
    saved = {size: peak_saved_bytes(partial(_with_micro_batch(whole, size), 0), weights) for size in sizes}
    measured = {"saved tensors": saved}
    if STATUS.exists():
        measured["growth of the resident set"] = {
            size: _growth_in_new_process(encoder, classes, n, size) for size in sizes
        }
    results = []
    for what, bytes_of in measured.items():
        results.append(Result(f"{encoder}: {what}, one pass", bytes_of[None] / 1e6, "MB"))
        for size in MICRO_BATCHES:
            ratio = bytes_of[size] / bytes_of[None]
            results.append(Result(f"{encoder}: {what}, micro-batch {size} / one pass", ratio))
    return results


def _step(encoder: str, classes: int, n: int, micro_batch: int | None) -> Step:
    recipe = folder(n=n)
    config = replace(
        recipe,
        generator=replace(recipe.generator, noise=None),  # a noise image, as published
        encoder=ENCODERS[encoder],
        batch=replace(recipe.batch, generated=n),
        objective=replace(recipe.objective, pixels=False),
        engine=replace(recipe.engine, micro_batch=micro_batch),
    )
    return build_step(config, random_images(classes, n))


def _with_micro_batch(step: Step, size: int | None) -> Step:
    """Return the same step, with the same state, in micro-batches of that size."""
    return replace(step, config=replace(step.config, engine=replace(step.config.engine, micro_batch=size)))


def _operations(run: partial[object]) -> int:
    """Count multiplications and additions in matrix products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def _growth_in_new_process(encoder: str, classes: int, n: int, micro_batch: int | None) -> int:
    """Return the growth of the resident set during a step in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_growth, encoder, classes, n, micro_batch).result()


def _growth(encoder: str, classes: int, n: int, micro_batch: int | None) -> int:
    torch.set_num_threads(THREADS)
    step = _step(encoder, classes, n, micro_batch)
    # One sample first: torch loads libraries at the first computation.
    step.features(draw_inputs(step.config, step.state.generator, 0).rows(0, 1))
    return growth_bytes(partial(step, 0))
