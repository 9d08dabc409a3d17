"""`truedrift train RECIPE`: train a one-step generator; the same command again goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from truedrift.cli.main import CommandExit
from truedrift.cli.progress import ProgressDisplay
from truedrift.errors import UserError
from truedrift.recipes.evaluator import build_evaluator
from truedrift.recipes.overrides import recipe
from truedrift.training.config import Estimator, RunConfig
from truedrift.training.journal import read_metrics
from truedrift.training.loop import NonFinite, TrainingReport
from truedrift.training.run_directory import METRICS
from truedrift.training.setup import resolve_device
from truedrift.training.signals import EXIT_STATUS, EXIT_STATUS_KEYBOARD
from truedrift.training.train import train

LARGEST_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a one-step generator by drifting; the same command resumes it.

    The run directory holds config.json, metrics.jsonl, samples/*.png, checkpoints and TensorBoard's files. SIGTERM and
    SIGUSR1 save at the end of the step and exit with status 75: run the same command again. Several processes:
    torchrun --nproc-per-node 2 -m truedrift train RECIPE.

    Try it:
      truedrift train digits
      truedrift train digits --estimator standard --seed 1
      truedrift train toy --data two-moons --set objective.temperatures=0.1,0.5
      truedrift train digits --n 16 --print-config
    """

    recipe: Annotated[str, tyro.conf.Positional]
    """Name of the recipe; `truedrift recipes` lists them."""

    n: Annotated[int | None, tyro.conf.arg(aliases=["--positives"])] = None
    """Positives of each class a step; the recipe's if none is given. torchrun takes --n for its own."""

    seed: int | None = None
    """Seed of everything that is drawn."""

    estimator: Estimator | None = None
    """Of both sides; --set objective.estimator_neg=standard for one."""

    data: str | None = None
    """Directory or archive of the data; for the recipe toy the name of a toy."""

    config: Path | None = None
    """JSON file whose options go over the recipe's, as --print-config writes it."""

    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """An option as section.option=value; may be repeated."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    out: Path | None = None
    """Run directory; runs/RECIPE-HASH if none is named."""

    print_config: bool = False
    """Print the configuration as JSON and do nothing."""

    def prepare(self) -> Callable[[], str]:
        """The configuration, checked, and the data, found."""
        given = {"n": self.n, "seed": self.seed, "estimator": self.estimator, "data": self.data}
        tree = {} if self.config is None else _read(self.config)
        config = recipe(self.recipe, given=given, tree=tree, settings=self.set)
        if self.print_config:
            return partial(json.dumps, config.tree(), indent=2)
        progress = ProgressDisplay(quiet=not _is_rank_zero())
        evaluate = build_evaluator(config, device=resolve_device(self.device), progress=progress)
        reports = train(
            config, out=self.out, device=self.device, evaluate=evaluate, progress=progress, tell=progress.say
        )
        return partial(_train, config, reports, progress)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            tree = json.loads(file.read(LARGEST_CONFIG_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:
        came = f"the configuration {str(path)!r} cannot be read ({error})"
        raise UserError(came, "allowed is a JSON file", "write one with --print-config") from None
    if isinstance(tree, dict) and set(tree) >= {"schema", "config"}:  # config.json of a run
        tree = tree["config"]
    if not isinstance(tree, dict):
        came = f"the configuration {str(path)!r} holds no options"
        raise UserError(came, "allowed is one JSON object", "write one with --print-config")
    return tree


def _train(config: RunConfig, reports: Iterator[TrainingReport], progress: ProgressDisplay) -> str:
    last: TrainingReport | None = None
    with progress:
        try:
            for report in reports:
                last = report
        except NonFinite as failure:
            raise CommandExit(str(failure), status=1) from None
    if last is None:
        raise CommandExit("no step was taken", status=1)
    if last.interrupted is not None:
        status = EXIT_STATUS_KEYBOARD if last.interrupted == "SIGINT" else EXIT_STATUS
        said = f"{last.interrupted}: saved at step {last.step} of {last.steps} in {last.directory}"
        raise CommandExit(f"{said}; run the same command again to go on", status=status)
    return _summary(config, last) if _is_rank_zero() else ""


def _is_rank_zero() -> bool:
    """Of the processes that torchrun started: the one that talks."""
    return os.environ.get("RANK", "0") == "0"


def _summary(config: RunConfig, last: TrainingReport) -> str:
    metrics = last.metrics
    taus = ", ".join(f"{tau:g}" for tau in config.objective.temperatures)
    effective = ", ".join(map(_number, metrics.get("n_eff_pos", ())))
    lines = (
        f"complete: {last.steps} steps, {metrics.get('positives_seen', 0)} positives a class seen",
        f"effective positives of {config.batch.n}: {effective} (τ = {taus});  spread {_number(metrics.get('spread'))}",
        *_evaluation_line(last.directory),
        f"samples:  {last.directory / 'samples'}",
        f"next:     truedrift sample {last.directory}",
    )
    return "\n".join(lines)


def _evaluation_line(directory: Path) -> tuple[str, ...]:
    """The last evaluation on the way, if there was one."""
    evaluated = [entry for entry in read_metrics(directory / METRICS) if "protocol" in entry]
    if not evaluated:
        return ()
    protocol, numbers = evaluated[-1]["protocol"], evaluated[-1]["evaluation"]
    by = f"{protocol['samples']} samples against {protocol['reference_count']} of {protocol['reference']}"
    best = min(entry["evaluation"]["fid"] for entry in evaluated)
    return (f"distance: {_number(numbers['fid'])} by {protocol['extractor']} ({by}), best {_number(best)}",)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
