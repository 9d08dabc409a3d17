"""What the rest of a plan costs: from the paper's own times at its scale, else from runs here or a few timed steps.

The paper: 37.1 s (standard) and 42.8 s (ABC) an epoch at n = 8 on one A100, and about 700 A100-hours for the 24 runs of
its main grid. At n = 8 these are 4 000 epochs × 3 seeds × (37.1 s + 42.8 s) ≈ 266 hours; the rest, spread evenly over
the other n, is 24 hours a run. CIFAR-100 has no time in the paper: its samples are counted as those of n = 64 are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from truedrift.experiments.grids.command import run_of
from truedrift.experiments.grids.plan import Plan, Task
from truedrift.experiments.grids.standing import is_done, seconds, steps_taken
from truedrift.experiments.grids.timed import STEPS, timed, timed_reference
from truedrift.experiments.grids.workers import cores, threads_of_each, worker_count
from truedrift.recipes.cifar import CIFAR10_EPOCHS, CIFAR10_SEEDS, STEPS_PER_EPOCH

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
    left = {task: 1 - steps_taken(task, run_of(task, runs)) / task.steps for task in plan.tasks}
    left = {task: share for task, share in left.items() if not is_done(task, run_of(task, runs))}
    if plan.scale == "paper":
        total = sum(share * paper_seconds(task) for task, share in left.items())
        return Estimate(seconds=total, basis="on one A100, from the times that the paper tells")
    return _here(plan, runs, left, device, worker_count(device, asked, len(left)))


def paper_seconds(task: Task) -> float:
    """Of a whole run at the paper's scale on one A100."""
    config = task.config
    n, epochs = config.batch.n, config.cadence.epochs
    if config.recipe == "cifar10" and n == 8:
        standard = (config.objective.estimator_pos, config.objective.estimator_neg) == ("standard", "standard")
        return epochs * (STANDARD_EPOCH_SECONDS if standard else ABC_EPOCH_SECONDS)
    samples = epochs * STEPS_PER_EPOCH * n * CLASSES[config.data.name]
    return samples * _seconds_a_sample()


def _seconds_a_sample() -> float:
    """Of the runs of the main grid that are not at n = 8, which all see as many samples."""
    at_8 = CIFAR10_EPOCHS[8] * len(CIFAR10_SEEDS) * (STANDARD_EPOCH_SECONDS + ABC_EPOCH_SECONDS)
    runs = 2 * len(CIFAR10_SEEDS) * (len(CIFAR10_EPOCHS) - 1)
    samples = CIFAR10_EPOCHS[64] * STEPS_PER_EPOCH * 64 * CLASSES["cifar10"]
    return (3600 * MAIN_GRID_HOURS - at_8) / runs / samples


def _here(plan: Plan, runs: Path, left: dict[Task, float], device: str, workers: int) -> Estimate:
    """Every kind of run by those of it that are done, else by a few steps of one."""
    known = _seconds_of_done(plan, runs)
    kinds = {_kind(task): task for task in left if _kind(task) not in known}
    of_kind = known | {kind: timed(task, device, threads_of_each(workers)) for kind, task in kinds.items()}
    total = sum(START_SECONDS + share * of_kind[_kind(task)] for task, share in left.items())
    first = timed_reference(plan.tasks[0].config, device, cores()) if left else 0.0
    seen = ["runs that were done here"] if len(kinds) < len({_kind(task) for task in left}) else []
    tried = [f"{STEPS} steps of a run of each kind and some images before its judge"] if kinds else []
    by = f"{workers} worker{'s' if workers > 1 else ''}"
    basis = f"with {by}, from {' and '.join(seen + tried)}" if left else "since nothing is left to do"
    return Estimate(seconds=first + total / workers, basis=basis)


def _kind(task: Task) -> Hashable:
    """What decides the time of a run."""
    objective = task.config.objective
    return task.config.batch.n, objective.arithmetic, objective.normalization


def _seconds_of_done(plan: Plan, runs: Path) -> dict[Hashable, float]:
    """Of every kind, the mean."""
    found: dict[Hashable, list[float]] = {}
    for task in plan.tasks:
        if is_done(task, run_of(task, runs)):
            found.setdefault(_kind(task), []).append(seconds(run_of(task, runs)))
    return {kind: sum(times) / len(times) for kind, times in found.items()}
