"""What `--dry-run` prints: one line per run of a plan, then one line that estimates the remaining time.

At scale `paper` the estimate is the paper's: 37.1 s (standard) and 42.8 s (ABC) per epoch at n = 8 on one A100, and
about 700 A100-hours for the 24 runs of its main grid. At n = 8 these are 4 000 epochs × 3 seeds × (37.1 s + 42.8 s)
≈ 266 hours; the rest, divided evenly among the other runs, is 24 hours per run. The paper gives no time for CIFAR-100:
its samples are assumed to take as long as those at n = 64. At the other scales, a few steps are timed for every n.
"""

import time
from dataclasses import replace
from pathlib import Path

import torch

from truedrift.data.samples import Samples
from truedrift.distributed import resolve_device
from truedrift.grids.local import threads_per_worker, worker_count
from truedrift.grids.plan import HUB, Plan, Task, is_done, missing_requirements, steps_taken
from truedrift.progress import no_progress
from truedrift.recipes.recipes import CIFAR10_EPOCHS, CIFAR10_SEEDS, STEPS_PER_EPOCH
from truedrift.report.table import align_columns
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, build_setup, load_samples

STANDARD_EPOCH_SECONDS, ABC_EPOCH_SECONDS = 37.1, 42.8
MAIN_GRID_HOURS = 700
CLASSES = {"cifar10": 10, "cifar100": 100}
WARM_UP, STEPS = 2, 5
COLUMNS = ("run", "variant", "n", "seed", "epochs", "steps", "state")


def describe_plan(plan: Plan, runs: Path, device: str, workers: int | None) -> str:
    """Return the table of runs with their states, the networks, and the estimate."""
    # One line per run
    remaining = remaining_steps(plan, runs)
    rows: list[tuple[object, ...]] = [COLUMNS]
    for task in plan.tasks:
        n, seed, cadence = task.config.batch.n, task.config.seed, task.config.cadence
        taken = task.steps - remaining.get(task, 0)
        state = "done" if task not in remaining else f"{taken} of {task.steps} steps" if taken else "to do"
        rows.append((task.name, task.variant, n, seed, cadence.epochs, cadence.steps, state))
    done = len(plan.tasks) - len(remaining)
    lines = align_columns([[str(cell) for cell in row] for row in rows])
    lines += ["", f"{plan.item} at scale {plan.scale} on {plan.data}: {len(plan.tasks)} runs, {done} done"]
    # Networks
    config = plan.tasks[0].config
    if config.evaluation.extractor is not None:
        lines.append(f"evaluated by {config.evaluation.extractor} on {config.evaluation.samples} samples")
    if config.encoder.kind == "dinov2":
        lines.append(f"trained on features of dinov2: {HUB}")
    # Estimate
    missing = missing_requirements(config)
    if plan.scale == "paper":
        seconds = sum(paper_seconds(task) * steps / task.steps for task, steps in remaining.items())
        lines.append(f"estimate: {format_duration(seconds)} on one A100, from the paper's times")
        lines += [] if missing is None else [f"missing here: {missing}"]
    elif missing is not None:
        lines.append(f"no estimate: {missing}")
    else:
        lines.append(_local_estimate(remaining, device, workers))
    return "\n".join(lines)


def remaining_steps(plan: Plan, runs: Path) -> dict[Task, int]:
    """Return the number of remaining steps of every run that is not done."""
    return {task: task.steps - steps_taken(task, runs) for task in plan.tasks if not is_done(task, runs)}


def paper_seconds(task: Task) -> float:
    """Return the seconds of a whole run at the paper's scale on one A100."""
    config, n, epochs = task.config, task.config.batch.n, task.config.cadence.epochs
    if config.recipe == "cifar10" and n == 8:
        standard = (config.objective.estimator_pos, config.objective.estimator_neg) == ("standard", "standard")
        return epochs * (STANDARD_EPOCH_SECONDS if standard else ABC_EPOCH_SECONDS)
    # All runs of the main grid that are not at n = 8 see the same number of samples.
    at_8 = CIFAR10_EPOCHS[8] * len(CIFAR10_SEEDS) * (STANDARD_EPOCH_SECONDS + ABC_EPOCH_SECONDS)
    other_runs = 2 * len(CIFAR10_SEEDS) * (len(CIFAR10_EPOCHS) - 1)
    samples_per_run = CIFAR10_EPOCHS[64] * STEPS_PER_EPOCH * 64 * CLASSES["cifar10"]
    seconds_per_sample = (3600 * MAIN_GRID_HOURS - at_8) / other_runs / samples_per_run
    return epochs * STEPS_PER_EPOCH * n * CLASSES[config.data.name] * seconds_per_sample


def _local_estimate(remaining: dict[Task, int], device: str, asked: int | None) -> str:
    """Return the estimate for this machine, from a few timed steps of one run per batch size."""
    if not remaining:
        return "estimate: nothing is left to do"
    one_per_batch = {task.config.batch: task.config for task in remaining}
    workers = worker_count(device, asked, len(remaining))
    # Time a few steps with the threads that each worker will have.
    samples = load_samples(next(iter(remaining)).config, Parts())
    threads = torch.get_num_threads()
    torch.set_num_threads(threads_per_worker(workers))
    try:
        where = resolve_device(device)
        per_step = {batch: seconds_per_step(config, samples, where) for batch, config in one_per_batch.items()}
    finally:
        torch.set_num_threads(threads)
    # Add up all runs.
    seconds = sum(steps * per_step[task.config.batch] for task, steps in remaining.items()) / workers
    count = f"{workers} worker{'s' if workers > 1 else ''}"
    return (
        f"estimate: {format_duration(seconds)} of training with {count}, from {STEPS} steps per batch size, "
        "without evaluations"
    )


def seconds_per_step(config: RunConfig, samples: Samples, device: torch.device) -> float:
    """Return the mean time of a few steps after a warm-up; positives are encoded anew in each."""
    plain = replace(config, engine=replace(config.engine, cached_positives=False))
    step = build_setup(plain, Parts(), samples, device, no_progress).step
    start = 0.0
    for number in range(WARM_UP + STEPS):
        if number == WARM_UP:
            start = time.perf_counter()
        float(step(number).gradient_norm)  # reading the number waits for the device
    return (time.perf_counter() - start) / STEPS


def format_duration(seconds: float) -> str:
    """Return for example "40 s", "10 min" or "2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"
