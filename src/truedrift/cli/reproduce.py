"""`truedrift reproduce ITEM`: a figure or table of the paper, or a study of ours, by one command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from truedrift.cli.main import CommandExit
from truedrift.cli.progress import ProgressDisplay
from truedrift.errors import UserError, require_choice
from truedrift.grids.estimate import describe_plan
from truedrift.grids.local import Interrupted
from truedrift.grids.options import Scale, StudyOptions
from truedrift.grids.plan import Plan
from truedrift.grids.run import Execution, Executor, RunsBusy, RunsFailed
from truedrift.grids.slurm import SlurmOptions, Submission
from truedrift.paper import tab_overhead
from truedrift.paper.catalog import GRIDS, REPRODUCIBLE, STUDIES, plan_grid, render_record, run_study
from truedrift.paper.tab_overhead import measurements
from truedrift.records.store import RECORDS, append, writable_directory
from truedrift.training.setup import resolve_device
from truedrift.training.signals import EXIT_STATUS

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Compute a figure or table of the paper, or a study beyond it, and draw it.

    The result is a record in DIR/records.jsonl, and files made of it. An image experiment is a grid of runs: those that
    are done are not done again, whichever item made them, and the same command goes on where it was. With --executor
    slurm it submits what is missing and returns; the same command gathers when the jobs are done.

    Try it:
      truedrift reproduce fig:bias_loglog
      truedrift reproduce tab:baselines --scale smoke
      truedrift reproduce tab:main_results --scale cpu --dry-run
      truedrift reproduce tab:main_results --scale paper --executor slurm --slurm.partition gpu
      truedrift reproduce all --scale smoke --out runs/everything
    """

    item: Annotated[str, tyro.conf.Positional]
    """Label of the figure or table, name of the study, or `all`."""

    scale: Scale = "cpu"
    """smoke: does it run? (seconds to minutes); cpu: for two cores; paper: the paper's own size."""

    dataset: str | None = None
    """Of an image experiment: digits, fashion-mnist, cifar10 or cifar100; none: that of the item and scale."""

    seed: int = 0
    """Seed of everything that is drawn; runs of images count from it, at paper scale from 42."""

    seeds: int | None = None
    """How many seeds an image experiment has; none: as many as its scale."""

    extractor: str | None = None
    """What judges the runs of an image experiment; abc-release is the published code's, for CIFAR."""

    dry_run: bool = False
    """Print the runs of an image experiment, their state and an estimate of the cost, and do nothing."""

    runs: Path = Path("runs/grid")
    """Directory of the runs of image experiments, which items share."""

    executor: Executor = "local"
    """Who runs them: processes on this machine, or Slurm."""

    workers: int | None = None
    """Runs at a time on this machine; none: one a GPU, or one a core."""

    device: str = "auto"
    """auto, cpu, cuda or mps, for image experiments."""

    slurm: SlurmOptions = field(default_factory=SlurmOptions)

    out: Path | None = None
    """Directory of records, figures and tables; runs/ITEM-SCALE if none is named."""

    def prepare(self) -> Callable[[], str]:
        """Check the options, what runs need, and the directory."""
        require_choice("item", self.item, (*REPRODUCIBLE, ALL))
        resolve_device(self.device)
        self._require_use()
        setting = StudyOptions(
            scale=self.scale,
            seed=self.seed,
            dataset=self.dataset,
            seeds=self.seeds,
            extractor=self.extractor,
            device=self.device,
        )
        execution = Execution(runs=self.runs, executor=self.executor, workers=self.workers, slurm=self.slurm)
        execution.pool(self.device)
        items = REPRODUCIBLE if self.item == ALL else (self.item,)
        plans, absent = _plans(items, setting, execution, leave_out=self.item == ALL, only_look=self.dry_run)
        if self.dry_run:
            return partial(_describe_plans, plans, execution, setting)
        out = writable_directory(self.out or Path("runs") / f"{self.item.replace(':', '_')}-{self.scale}")
        return partial(_reproduce, plans, absent, execution, setting, out)

    def _require_use(self) -> None:
        """Options that the item would pass over are a mistake; `all` gives them to those that have a use for them."""
        if self.item in GRIDS or self.item == ALL:
            return
        only = {"dataset": self.dataset, "seeds": self.seeds, "extractor": self.extractor}
        if self.item == tab_overhead.ITEM:
            del only["dataset"]
        named = [name for name, value in only.items() if value is not None]
        if self.executor != "local":
            named.append("executor")
        if named:
            came = f"--{named[0]} was given for {self.item}, which has no use for it"
            users = (*GRIDS, tab_overhead.ITEM) if named[0] == "dataset" else GRIDS
            raise UserError(came, f"it is for {', '.join(users)}", "leave it out")


Plans = dict[str, Plan | None]
"""Items with their runs, if they are made of runs."""


def _plans(
    items: tuple[str, ...], setting: StudyOptions, execution: Execution, *, leave_out: bool, only_look: bool
) -> tuple[Plans, list[str]]:
    """What is to be done, and sentences on what is left out of `all`, since something is missing for it."""
    plans: Plans = {}
    absent = []
    for item in items:
        try:
            plan = None if item in STUDIES else plan_grid(item, setting)
            if plan is not None and not only_look:
                execution.require_able(plan, setting.device)
            if item == tab_overhead.ITEM:
                check = tab_overhead.configs if only_look else tab_overhead.require_able
                check(setting)
            plans[item] = plan
        except UserError as error:
            if not leave_out:
                raise
            absent.append(f"{item} is left out: {error}")
    return plans, absent


def _describe_plans(plans: Plans, execution: Execution, setting: StudyOptions) -> str:
    def looked_at(item: str, plan: Plan | None) -> str:
        if plan is not None:
            return describe_plan(plan, execution.runs, setting.device, execution.workers)
        return measurements(setting) if item == tab_overhead.ITEM else f"{item}: computed here at once, no grid of runs"

    return "\n\n".join(looked_at(item, plan) for item, plan in plans.items())


def _reproduce(plans: Plans, absent: list[str], execution: Execution, setting: StudyOptions, out: Path) -> str:
    said = [_reproduce_item(item, plan, execution, setting, out) for item, plan in plans.items()]
    return "\n\n".join((*said, *absent))


def _reproduce_item(item: str, plan: Plan | None, execution: Execution, setting: StudyOptions, out: Path) -> str:
    with ProgressDisplay() as progress:
        shown = replace(setting, progress=progress, directory=out)
        found = run_study(item, shown) if plan is None else _run_grid(plan, execution, shown)
    if isinstance(found, Submission):
        return _submitted_message(item, found)
    append(out / RECORDS, found)
    return render_record(found, out)


def _run_grid(plan: Plan, execution: Execution, setting: StudyOptions) -> Any:
    again = "run the same command again to go on"
    try:
        return execution.carry_out(plan, setting)
    except RunsFailed as stopped:
        several = "; ".join(f"{each.task.name} ({each.task.variant}): {each.why}" for each in stopped.failed[:5])
        logs = f"their logs are in {execution.runs}"
        raise CommandExit(
            f"{plan.item}: {len(stopped.failed)} of {len(plan.tasks)} runs failed: {several}; {logs}; {again}",
            status=1,
        ) from None
    except RunsBusy as stopped:
        several = ", ".join(f"{each.task.name} ({each.task.variant})" for each in stopped.busy[:5])
        count = f"{len(stopped.busy)} of {len(plan.tasks)} runs"
        raise CommandExit(
            f"{plan.item}: another command is working on {count}: {several}; "
            "run the same command again when it has finished",
            status=EXIT_STATUS,
        ) from None
    except Interrupted as stopped:
        raise CommandExit(
            f"{stopped}: the runs of {plan.item} saved where they were; {again}", status=stopped.status
        ) from None


def _submitted_message(item: str, found: Submission) -> str:
    lines = [f"{item}: {len(found.submitted)} jobs submitted, {len(found.waiting)} in the queue already"]
    lines += [f"  job {job.id}: {job.task.name} ({job.task.variant})" for job in (*found.waiting, *found.submitted)]
    lines += [f"  job {job.id} had ended before its end: {why}" for job, why in found.ended_early]
    if found.waiting:
        lines.append(f"a job that will never run is forgotten by removing its file, such as {found.waiting[0].file}")
    return "\n".join((*lines, "run the same command again when they are done"))
