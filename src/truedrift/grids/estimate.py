"""How long a run takes here, from a few of its steps and a few images before the network that judges it.

Positives are encoded anew, where a run would keep their features; what compares features once they are there is left
out. The features of the data that runs are compared with are counted once for all runs. It is an estimate.

What the rest of a plan costs: from the paper's own times at its scale, else from runs here or a few timed steps.

The paper: 37.1 s (standard) and 42.8 s (ABC) an epoch at n = 8 on one A100, and about 700 A100-hours for the 24 runs of
its main grid. At n = 8 these are 4 000 epochs × 3 seeds × (37.1 s + 42.8 s) ≈ 266 hours; the rest, spread evenly over
the other n, is 24 hours a run. CIFAR-100 has no time in the paper: its samples are counted as those of n = 64 are.

A plan before anything of it is done: one line a run, then what is left to do and what it costs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from truedrift.data.samples import Samples
from truedrift.evaluation.catalog import build_extractor
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.reference import is_cached
from truedrift.grids.local import core_count, threads_per_worker, worker_count
from truedrift.grids.plan import HUB, Plan, Task, missing_requirements, run_path
from truedrift.grids.status import is_done, steps_taken, wall_seconds
from truedrift.progress import no_progress
from truedrift.recipes.evaluator import load_reference_data
from truedrift.recipes.recipes import CIFAR10_EPOCHS, CIFAR10_SEEDS, STEPS_PER_EPOCH
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, build_setup, load_samples, resolve_device

WARM_UP, STEPS, IMAGES = 2, 5, 20


def time_run(task: Task, device: str, threads: int) -> float:
    """Seconds of the whole run, as one of the workers does it."""
    with _with_threads(threads):
        where = resolve_device(device)
        samples = load_samples(task.config, Parts())
        training = task.steps * seconds_per_step(task.config, samples, where)
        if task.config.evaluation.extractor is None:
            return training
        image = _seconds_per_image(_extractor(task.config, samples, where), samples)
        return training + evaluations(task.config) * task.config.evaluation.samples * image


def time_reference(config: RunConfig, device: str, threads: int) -> float:
    """Seconds of the features of the data that runs are compared with; none if they are in the cache."""
    if config.evaluation.extractor is None:
        return 0.0
    with _with_threads(threads):
        data = load_reference_data(config.data, config.evaluation, seed=config.seed)
        extractor = _extractor(config, data, resolve_device(device))
        return 0.0 if is_cached(data, extractor) else len(data) * _seconds_per_image(extractor, data)


def evaluations(config: RunConfig) -> int:
    """Of a whole run; the last step is one of them."""
    if config.evaluation.extractor is None:
        return 0
    return math.ceil(config.cadence.epochs / config.cadence.evaluate_every_epochs)


def seconds_per_step(config: RunConfig, samples: Samples, device: torch.device) -> float:
    """The mean of a few."""
    plain = replace(config, engine=replace(config.engine, cached_positives=False))
    step = build_setup(plain, Parts(), samples, device, no_progress).step
    numbers = iter(range(WARM_UP + STEPS))
    return _seconds(lambda: float(step(next(numbers)).gradient_norm), STEPS)  # a number waits for the device


def _extractor(config: RunConfig, samples: Samples, device: torch.device) -> Extractor:
    assert config.evaluation.extractor is not None
    return build_extractor(config.evaluation.extractor, sample_shape=samples.sample_shape, device=device)


def _seconds_per_image(extractor: Extractor, samples: Samples) -> float:
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


STANDARD_EPOCH_SECONDS, ABC_EPOCH_SECONDS = 37.1, 42.8
MAIN_GRID_HOURS = 700
START_SECONDS = 10
"""Of the process of a run, before its first step."""
CLASSES = {"cifar10": 10, "cifar100": 100}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Of what is left of a plan."""

    seconds: float
    """From now to its end."""
    basis: str
    """Where the number is from."""


def estimate(plan: Plan, runs: Path, device: str, asked: int | None) -> Estimate:
    """The time that is left; at paper scale of one A100, else of this machine with its workers."""
    left = {task: 1 - steps_taken(task, run_path(task, runs)) / task.steps for task in plan.tasks}
    left = {task: share for task, share in left.items() if not is_done(task, run_path(task, runs))}
    if plan.scale == "paper":
        total = sum(share * paper_seconds(task) for task, share in left.items())
        return Estimate(seconds=total, basis="on one A100, from the times that the paper tells")
    return _estimate_local(plan, runs, left, device, worker_count(device, asked, len(left)))


def paper_seconds(task: Task) -> float:
    """Of a whole run at the paper's scale on one A100."""
    config = task.config
    n, epochs = config.batch.n, config.cadence.epochs
    if config.recipe == "cifar10" and n == 8:
        standard = (config.objective.estimator_pos, config.objective.estimator_neg) == ("standard", "standard")
        return epochs * (STANDARD_EPOCH_SECONDS if standard else ABC_EPOCH_SECONDS)
    samples = epochs * STEPS_PER_EPOCH * n * CLASSES[config.data.name]
    return samples * _seconds_per_sample()


def _seconds_per_sample() -> float:
    """Of the runs of the main grid that are not at n = 8, which all see as many samples."""
    at_8 = CIFAR10_EPOCHS[8] * len(CIFAR10_SEEDS) * (STANDARD_EPOCH_SECONDS + ABC_EPOCH_SECONDS)
    runs = 2 * len(CIFAR10_SEEDS) * (len(CIFAR10_EPOCHS) - 1)
    samples = CIFAR10_EPOCHS[64] * STEPS_PER_EPOCH * 64 * CLASSES["cifar10"]
    return (3600 * MAIN_GRID_HOURS - at_8) / runs / samples


def _estimate_local(plan: Plan, runs: Path, left: dict[Task, float], device: str, workers: int) -> Estimate:
    """Every kind of run by those of it that are done, else by a few steps of one."""
    known = _seconds_of_done_runs(plan, runs)
    kinds = {_run_kind(task): task for task in left if _run_kind(task) not in known}
    of_kind = known | {kind: time_run(task, device, threads_per_worker(workers)) for kind, task in kinds.items()}
    total = sum(START_SECONDS + share * of_kind[_run_kind(task)] for task, share in left.items())
    first = time_reference(plan.tasks[0].config, device, core_count()) if left else 0.0
    seen = ["runs that were done here"] if len(kinds) < len({_run_kind(task) for task in left}) else []
    tried = [f"{STEPS} steps of a run of each kind and some images before its judge"] if kinds else []
    by = f"{workers} worker{'s' if workers > 1 else ''}"
    basis = f"with {by}, from {' and '.join(seen + tried)}" if left else "since nothing is left to do"
    return Estimate(seconds=first + total / workers, basis=basis)


def _run_kind(task: Task) -> Hashable:
    """What decides the time of a run."""
    objective = task.config.objective
    return task.config.batch.n, objective.arithmetic, objective.normalization


def _seconds_of_done_runs(plan: Plan, runs: Path) -> dict[Hashable, float]:
    """Of every kind, the mean."""
    found: dict[Hashable, list[float]] = {}
    for task in plan.tasks:
        if is_done(task, run_path(task, runs)):
            found.setdefault(_run_kind(task), []).append(wall_seconds(run_path(task, runs)))
    return {kind: sum(times) / len(times) for kind, times in found.items()}


COLUMNS = "{:28} {:26} {:>3} {:>5} {:>7} {:>8}  {}"


def describe_plan(plan: Plan, runs: Path, device: str, workers: int | None) -> str:
    """What `--dry-run` prints."""
    head = COLUMNS.format("run", "variant", "n", "seed", "epochs", "steps", "state")
    lines = [_line(task, runs) for task in plan.tasks]
    done = sum(is_done(task, run_path(task, runs)) for task in plan.tasks)
    count = f"{plan.item} at scale {plan.scale} on {plan.data}: {len(plan.tasks)} runs, {done} done"
    return "\n".join((head, *lines, "", count, *_networks(plan.tasks[0].config), _cost(plan, runs, device, workers)))


def _line(task: Task, runs: Path) -> str:
    config = task.config
    cadence = config.cadence
    return COLUMNS.format(
        task.name, task.variant, config.batch.n, config.seed, cadence.epochs, cadence.steps, _state(task, runs)
    )


def _state(task: Task, runs: Path) -> str:
    taken = steps_taken(task, run_path(task, runs))
    if is_done(task, run_path(task, runs)):
        return "done"
    return f"{taken} of {task.steps} steps" if taken else "to do"


def _networks(config: RunConfig) -> list[str]:
    """Who judges the runs, and a word on features that come from afar."""
    options = config.evaluation
    judged = [] if options.extractor is None else [f"judged by {options.extractor} on {options.samples} samples"]
    return judged + ([f"trained on features of dinov2: {HUB}"] if config.encoder.kind == "dinov2" else [])


def _cost(plan: Plan, runs: Path, device: str, workers: int | None) -> str:
    absent = missing_requirements(plan)
    if absent is not None and plan.scale != "paper":
        return f"no estimate: {absent}"
    said = _describe_estimate(estimate(plan, runs, device, workers))
    return said if absent is None else f"{said}\nmissing here: {absent}"


def _describe_estimate(found: Estimate) -> str:
    return f"estimate: {format_duration(found.seconds)} {found.basis}"


def format_duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"
