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
from truedrift.grids.local import threads_per_worker, worker_count
from truedrift.grids.plan import HUB, Plan, Task, missing_requirements, run_path
from truedrift.grids.status import is_done, steps_taken
from truedrift.progress import no_progress
from truedrift.recipes.recipes import CIFAR10_EPOCHS, CIFAR10_SEEDS, STEPS_PER_EPOCH
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, build_setup, load_samples, resolve_device

STANDARD_EPOCH_SECONDS, ABC_EPOCH_SECONDS = 37.1, 42.8
MAIN_GRID_HOURS = 700
CLASSES = {"cifar10": 10, "cifar100": 100}
WARM_UP, STEPS = 2, 5
COLUMNS = "{:28} {:26} {:>3} {:>5} {:>7} {:>8}  {}"


def describe_plan(plan: Plan, runs: Path, device: str, workers: int | None) -> str:
    """Return the table of runs with their states, the networks, and the estimate."""
    lines = [COLUMNS.format("run", "variant", "n", "seed", "epochs", "steps", "state")]
    for task in plan.tasks:
        config, cadence = task.config, task.config.cadence
        state = _run_state(task, runs)
        lines.append(
            COLUMNS.format(task.name, task.variant, config.batch.n, config.seed, cadence.epochs, cadence.steps, state)
        )
    done = sum(is_done(task, run_path(task, runs)) for task in plan.tasks)
    count = f"{plan.item} at scale {plan.scale} on {plan.data}: {len(plan.tasks)} runs, {done} done"
    return "\n".join((*lines, "", count, *_networks(plan.tasks[0].config), *_estimates(plan, runs, device, workers)))


def _run_state(task: Task, runs: Path) -> str:
    if is_done(task, run_path(task, runs)):
        return "done"
    steps = steps_taken(task, run_path(task, runs))
    return f"{steps} of {task.steps} steps" if steps else "to do"


def _networks(config: RunConfig) -> list[str]:
    """Return which network evaluates the runs, and where the features come from if they have to be downloaded."""
    options = config.evaluation
    lines = [] if options.extractor is None else [f"evaluated by {options.extractor} on {options.samples} samples"]
    return lines + ([f"trained on features of dinov2: {HUB}"] if config.encoder.kind == "dinov2" else [])


def _estimates(plan: Plan, runs: Path, device: str, workers: int | None) -> list[str]:
    missing = missing_requirements(plan)
    if plan.scale == "paper":
        line = f"estimate: {format_duration(remaining_paper_seconds(plan, runs))} on one A100, from the paper's times"
        return [line] if missing is None else [line, f"missing here: {missing}"]
    if missing is not None:
        return [f"no estimate: {missing}"]
    return [_local_estimate(plan, runs, device, workers)]


def remaining_paper_seconds(plan: Plan, runs: Path) -> float:
    """Return the seconds that the unfinished part of the plan takes on one A100."""
    return sum(paper_seconds(task) * steps / task.steps for task, steps in remaining_steps(plan, runs).items())


def remaining_steps(plan: Plan, runs: Path) -> dict[Task, int]:
    """Return the number of remaining steps of every run that is not done."""
    tasks = [task for task in plan.tasks if not is_done(task, run_path(task, runs))]
    return {task: task.steps - steps_taken(task, run_path(task, runs)) for task in tasks}


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


def _local_estimate(plan: Plan, runs: Path, device: str, asked: int | None) -> str:
    """Return the estimate for this machine, from a few timed steps of one run per n."""
    remaining = remaining_steps(plan, runs)
    if not remaining:
        return "estimate: nothing is left to do"
    workers, where = worker_count(device, asked, len(remaining)), resolve_device(device)
    samples = load_samples(plan.tasks[0].config, Parts())
    threads = torch.get_num_threads()
    torch.set_num_threads(threads_per_worker(workers))
    try:
        one_per_n = {task.config.batch.n: task.config for task in remaining}
        per_step = {n: seconds_per_step(config, samples, where) for n, config in one_per_n.items()}
    finally:
        torch.set_num_threads(threads)
    seconds = sum(steps * per_step[task.config.batch.n] for task, steps in remaining.items()) / workers
    count = f"{workers} worker{'s' if workers > 1 else ''}"
    return (
        f"estimate: {format_duration(seconds)} of training with {count}, from {STEPS} steps per n, without evaluations"
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
