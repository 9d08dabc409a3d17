"""A plan before anything of it is done: one line a run, then what is left to do and what it costs."""

from __future__ import annotations

from pathlib import Path

from truedrift.experiments.grids.command import run_of
from truedrift.experiments.grids.cost import Estimate, estimate
from truedrift.experiments.grids.needs import HUB, missing
from truedrift.experiments.grids.plan import Plan, Task
from truedrift.experiments.grids.standing import is_done, steps_taken
from truedrift.training.config import RunConfig

COLUMNS = "{:28} {:26} {:>3} {:>5} {:>7} {:>8}  {}"


def outlook(plan: Plan, runs: Path, device: str, workers: int | None) -> str:
    """What `--dry-run` prints."""
    head = COLUMNS.format("run", "variant", "n", "seed", "epochs", "steps", "state")
    lines = [_line(task, runs) for task in plan.tasks]
    done = sum(is_done(task, run_of(task, runs)) for task in plan.tasks)
    count = f"{plan.item} at scale {plan.scale} on {plan.data}: {len(plan.tasks)} runs, {done} done"
    return "\n".join((head, *lines, "", count, *_networks(plan.tasks[0].config), _cost(plan, runs, device, workers)))


def _line(task: Task, runs: Path) -> str:
    config = task.config
    cadence = config.cadence
    return COLUMNS.format(
        task.name, task.variant, config.batch.n, config.seed, cadence.epochs, cadence.steps, _state(task, runs)
    )


def _state(task: Task, runs: Path) -> str:
    taken = steps_taken(task, run_of(task, runs))
    if is_done(task, run_of(task, runs)):
        return "done"
    return f"{taken} of {task.steps} steps" if taken else "to do"


def _networks(config: RunConfig) -> list[str]:
    """Who judges the runs, and a word on features that come from afar."""
    options = config.evaluation
    judged = [] if options.extractor is None else [f"judged by {options.extractor} on {options.samples} samples"]
    return judged + ([f"trained on features of dinov2: {HUB}"] if config.encoder.kind == "dinov2" else [])


def _cost(plan: Plan, runs: Path, device: str, workers: int | None) -> str:
    absent = missing(plan)
    if absent is not None and plan.scale != "paper":
        return f"no estimate: {absent}"
    said = _told(estimate(plan, runs, device, workers))
    return said if absent is None else f"{said}\nmissing here: {absent}"


def _told(found: Estimate) -> str:
    return f"estimate: {spoken(found.seconds)} {found.basis}"


def spoken(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"
