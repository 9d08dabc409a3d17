"""Run directories → one record with the evaluations of every run of a plan.

Each record serves one item: `tab:main_results`, `fig:convergence`, `tab:samples_to_fid`, `fig:ablation_trajectory`,
`tab:cifar100`, `arithmetic` and `temperature-sweep` are all made from such grids.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.generators.catalog import GeneratorOptions, build
from truedrift.grids.plan import Plan, Task, run_path
from truedrift.grids.status import evaluations_by_step, wall_seconds
from truedrift.options import from_dict
from truedrift.records.provenance import Provenance, provenance
from truedrift.training.run_directory import METRICS, RunDirectory, open_run


@dataclass(frozen=True, kw_only=True)
class EvaluatedStep:
    """An evaluation during training."""

    step: int
    positives_seen: int
    """Positives per class."""
    metrics: Metrics


@dataclass(frozen=True, kw_only=True)
class ImageRun:
    """One run of a grid. `variant` is what the item compares; runs with the same seed are pairs."""

    id: str
    """Hash of its whole configuration."""
    variant: str
    """standard or abc; none, positive, negative or both; "row/abc2" in `arithmetic`; "abc/0.5" in the sweep."""
    n: int
    seed: int
    estimator_pos: str
    estimator_neg: str
    arithmetic: str
    normalization: str
    temperatures: tuple[float, ...]
    epochs: int
    steps_per_epoch: int
    parameters: int
    seconds: float
    """Seconds of training and evaluations together, over all starts."""
    evaluations: tuple[EvaluatedStep, ...]


@dataclass(frozen=True, kw_only=True)
class ImageGrid:
    """All runs of an item, and the protocol that their evaluations share."""

    item: str
    scale: str
    data: str
    classes: int
    recipe: str
    evaluate_every_epochs: int
    protocol: Protocol
    runs: tuple[ImageRun, ...]
    provenance: Provenance


def collect_results(plan: Plan, runs: Path, *, seed: int, started: float) -> ImageGrid:
    """Return the record of a plan whose runs are all done; `started` is the monotonic start time of the command."""
    opened = {task.id: open_run(run_path(task, runs)) for task in plan.tasks}
    config = plan.tasks[0].config
    return ImageGrid(
        item=plan.item,
        scale=plan.scale,
        data=plan.data,
        classes=len(opened[plan.tasks[0].id].data["classes"]),
        recipe=config.recipe,
        evaluate_every_epochs=config.cadence.evaluate_every_epochs,
        protocol=_common_protocol(plan, runs),
        runs=tuple(_run(task, opened[task.id]) for task in plan.tasks),
        provenance=provenance(seed=seed, wall_seconds=time.monotonic() - started, command=plan.command),
    )


def _run(task: Task, run: RunDirectory) -> ImageRun:
    config, objective = task.config, task.config.objective
    return ImageRun(
        id=task.id,
        variant=task.variant,
        n=config.batch.n,
        seed=config.seed,
        estimator_pos=objective.estimator_pos,
        estimator_neg=objective.estimator_neg,
        arithmetic=objective.arithmetic,
        normalization=objective.normalization,
        temperatures=objective.temperatures,
        epochs=config.cadence.epochs,
        steps_per_epoch=config.cadence.steps_per_epoch,
        parameters=_parameters(config.generator, tuple(run.data["sample_shape"]), len(run.data["classes"])),
        seconds=wall_seconds(run.path),
        evaluations=_evaluations(task, run.path),
    )


def _evaluations(task: Task, run: Path) -> tuple[EvaluatedStep, ...]:
    return tuple(
        EvaluatedStep(
            step=step,
            positives_seen=task.config.positives_seen(step),
            metrics=_parse_metrics(Metrics, entry["evaluation"], run),
        )
        for step, entry in sorted(evaluations_by_step(run).items())
    )


def _common_protocol(plan: Plan, runs: Path) -> Protocol:
    """Return the protocol of all evaluations; require that there is only one, as others cannot be compared."""
    protocols: dict[Protocol, Path] = {}
    for task in plan.tasks:
        run = run_path(task, runs)
        for entry in evaluations_by_step(run).values():
            protocols.setdefault(_parse_metrics(Protocol, entry.get("protocol"), run), run)
    if len(protocols) > 1:
        first, second, *_ = protocols.values()
        raise UserError(
            f"{str(first)!r} and {str(second)!r} were evaluated by different protocols",
            "all runs of a grid must use the same data and the same extractor",
            "move one of them away and run the same command again",
        )
    (protocol,) = protocols
    return protocol


def _parse_metrics(kind: Any, tree: Any, run: Path) -> Any:
    """Parse a value of metrics.jsonl as `kind`."""
    try:
        return from_dict(kind, tree)
    except UserError as error:
        raise error.with_prefix(repr(str(run / METRICS))) from None


@cache
def _parameters(options: GeneratorOptions, sample_shape: tuple[int, ...], classes: int) -> int:
    generator = build(options, sample_shape=sample_shape, classes=classes, seed=0)
    return sum(parameter.numel() for parameter in generator.parameters())
