"""Run directories → one record with the evaluations of every run of a plan."""

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.generators.catalog import GeneratorOptions, build
from truedrift.grids.plan import Plan, Task, run_path
from truedrift.grids.record import EvaluatedStep, ImageGrid, ImageRun
from truedrift.options import from_dict
from truedrift.records.provenance import provenance
from truedrift.storage import iterate_json_lines
from truedrift.training.run_directory import METRICS, open_run
from truedrift.training.status import wall_seconds


def collect_results(plan: Plan, runs: Path, *, seed: int, started: float) -> ImageGrid:
    """Return the record of a plan whose runs are all done.

    Args:
        plan: A plan for which `is_done` is true of every task.
        runs: The directory that contains the run directories.
        seed: The seed to write into the provenance.
        started: `time.monotonic()` at the start of the command, from which the wall time in the provenance is counted.

    Returns:
        The evaluations of every run, and the protocol that they share.

    Raises:
        UserError: If two runs were evaluated by different protocols, a file is not what `truedrift train` wrote, the
            plan has fewer than two variants, or a variant has no run at some n.
    """
    evaluations = {task.id: _read_evaluations(run_path(task, runs)) for task in plan.tasks}
    config = plan.tasks[0].config
    return ImageGrid(
        item=plan.item,
        scale=plan.scale,
        data=plan.data,
        classes=len(open_run(run_path(plan.tasks[0], runs)).data["classes"]),
        recipe=config.recipe,
        evaluate_every_epochs=config.cadence.evaluate_every_epochs,
        protocol=_common_protocol(plan, runs, evaluations),
        runs=tuple(_run(task, run_path(task, runs), evaluations[task.id]) for task in plan.tasks),
        provenance=provenance(seed=seed, wall_seconds=time.monotonic() - started, command=plan.command),
    )


def _read_evaluations(run: Path) -> dict[int, dict[str, Any]]:
    """Return the lines of metrics.jsonl with an evaluation, by step."""
    entries = iterate_json_lines(run / METRICS, strict=True)
    return {entry["step"]: entry for entry in entries if "evaluation" in entry}


def _fastest_step_seconds(run: Path, images_per_step: int) -> float | None:
    """Return the seconds per step in the fastest logged interval, or None if no time was logged."""
    entries = iterate_json_lines(run / METRICS, strict=True)
    fastest = max((entry.get("timing", {}).get("images_per_second", 0) for entry in entries), default=0)
    return images_per_step / fastest if fastest > 0 else None


def _run(task: Task, path: Path, evaluations: dict[int, dict[str, Any]]) -> ImageRun:
    config, objective, data = task.config, task.config.objective, open_run(path).data
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
        parameters=_count_parameters(config.generator, tuple(data["sample_shape"]), len(data["classes"])),
        seconds=wall_seconds(path),
        evaluations=tuple(
            EvaluatedStep(
                step=step,
                positives_seen=config.positives_seen(step, len(data["classes"])),
                metrics=_parse(Metrics, entry["evaluation"], path),
            )
            for step, entry in sorted(evaluations.items())
        ),
        step_seconds=_fastest_step_seconds(path, config.generated * config.classes_per_step(len(data["classes"]))),
    )


def _common_protocol(plan: Plan, runs: Path, evaluations: dict[str, dict[int, dict[str, Any]]]) -> Protocol:
    """Return the protocol of all evaluations; require that there is only one, as others cannot be compared.

    The strength belongs to the run, which was trained for it: the protocol has that of the first run.
    """
    protocols: dict[Protocol, Path] = {}
    strength: float | None = None
    for task in plan.tasks:
        run = run_path(task, runs)
        for entry in evaluations[task.id].values():
            protocol = _parse(Protocol, entry.get("protocol"), run)
            strength = protocol.strength if strength is None else strength
            protocols.setdefault(replace(protocol, strength=strength), run)
    if len(protocols) > 1:
        first, second, *_ = protocols.values()
        raise UserError(
            f"{str(first)!r} and {str(second)!r} were evaluated by different protocols",
            "all runs of a grid must use the same data and the same extractor",
            "move one of them to another directory and run the same command again",
        )
    (protocol,) = protocols
    return protocol


def _parse(kind: Any, tree: Any, run: Path) -> Any:
    """Parse a value of metrics.jsonl as `kind`."""
    try:
        return from_dict(kind, tree)
    except UserError as error:
        raise error.with_prefix(repr(str(run / METRICS))) from None


@cache
def _count_parameters(options: GeneratorOptions, sample_shape: tuple[int, ...], classes: int) -> int:
    generator = build(options, sample_shape=sample_shape, classes=classes, seed=0)
    return sum(parameter.numel() for parameter in generator.parameters())
