"""`truedrift reproduce ITEM`: compute and draw a figure or table of the paper, or an additional study."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, cast, get_args

import tyro

from truedrift.cli.runs import explain_stop
from truedrift.distributed import resolve_device
from truedrift.errors import UserError, require_choice
from truedrift.grids.estimate import describe_plan
from truedrift.grids.local import Pool
from truedrift.grids.options import Scale, StudyOptions
from truedrift.grids.plan import Plan, require_available
from truedrift.grids.run import Execution, Executor
from truedrift.grids.slurm import SlurmOptions, Submission
from truedrift.paper import tab_overhead
from truedrift.paper.catalog import GRIDS, REPRODUCIBLE, plan_grid, render_record, run_study
from truedrift.progress_display import ProgressDisplay
from truedrift.records.store import RECORDS, append, writable_directory

ALL = "all"
SCALES, EXECUTORS = get_args(Scale), get_args(Executor)


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Compute and draw a figure or table of the paper, or an additional study.

    The result is a record in DIR/records.jsonl, with figures and tables drawn from it. An image experiment is a grid of
    runs. Finished runs are reused, including by other items, and the same command continues where it stopped. With
    --executor slurm the command submits the missing runs and returns; run it again to collect the results.

    Items of the paper:
      Figure 1  fig:illustration         Table 1  tab:main_results      Table 5  tab:baselines
      Figure 2  fig:bias_loglog          Table 2  tab:samples_to_fid    Table 6  tab:hyperparams
      Figure 3  fig:convergence          Table 3  tab:overhead          Table 7  tab:cifar100
      Figure 4  fig:ablation_trajectory  Appendix D  app:temperature

    Additional studies:
      normalization, guidance, equilibrium, digits, arithmetic, temperature-sweep, matching, images

    Try it:
      truedrift reproduce fig:bias_loglog
      truedrift reproduce tab:baselines --scale smoke
      truedrift reproduce tab:main_results --scale cpu --dry-run
      truedrift reproduce tab:main_results --scale paper --executor slurm --slurm.partition gpu
      truedrift reproduce all --scale smoke --out runs/everything
    """

    item: Annotated[str, tyro.conf.Positional]
    """Label of a figure or table, name of a study, or `all`."""

    scale: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SCALES) + "}")] = "cpu"
    """smoke: a quick check (seconds to minutes); cpu: for two cores; paper: the size used in the paper."""

    dataset: str | None = None
    """digits, fashion-mnist, cifar10 or cifar100, for image experiments; chosen by item and scale if not given."""

    seed: int = 0
    """Seed of all random draws. Image runs use consecutive seeds from this one on (plus 42 at paper scale)."""

    seeds: int | None = None
    """Number of seeds of an image experiment; chosen by scale if not given."""

    extractor: str | None = None
    """Extractor that evaluates image runs; abc-release (for CIFAR) is the one of the published code."""

    dry_run: bool = False
    """Only print the runs of an image experiment, their state and the estimated cost."""

    runs: Path = Path("runs/grid")
    """Directory of the runs of image experiments, shared by all items."""

    executor: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(EXECUTORS) + "}")] = "local"
    """Run on this machine (local), or submit to Slurm (slurm)."""

    workers: int | None = None
    """Parallel runs on this machine; one per GPU, or one per core, if not given."""

    device: str = "auto"
    """auto, cpu, cuda or mps, for image experiments."""

    slurm: SlurmOptions = field(default_factory=SlurmOptions)

    out: Path | None = None
    """Directory of records, figures and tables; runs/ITEM-SCALE if not given."""

    def prepare(self) -> Callable[[], str]:
        """Check the options, what the runs need, and the directory. No data is loaded."""
        # Check the options.
        require_choice("item", self.item, (*REPRODUCIBLE, ALL))
        require_choice("scale", self.scale, SCALES)
        require_choice("executor", self.executor, EXECUTORS)
        resolve_device(self.device)
        Pool(runs=self.runs, workers=self.workers)  # checks the workers
        self._require_used_options()
        options = StudyOptions(
            scale=cast("Scale", self.scale),
            seed=self.seed,
            dataset=self.dataset,
            seeds=self.seeds,
            extractor=self.extractor,
            device=self.device,
        )
        executor = cast("Executor", self.executor)
        execution = Execution(runs=self.runs, executor=executor, workers=self.workers, slurm=self.slurm)
        # Plan the runs, and check what they need.
        plans: Plans = {}
        skipped = []
        for item in REPRODUCIBLE if self.item == ALL else (self.item,):
            try:
                plans[item] = _plan_item(item, options, execution, dry_run=self.dry_run)
            except UserError as error:
                if self.item != ALL:
                    raise
                skipped.append(f"{item} is skipped: {error}")
        if self.dry_run:
            return partial(_describe_plans, plans, execution, options)
        out = writable_directory(self.out or Path("runs") / f"{self.item.replace(':', '_')}-{self.scale}")
        return partial(_reproduce, plans, skipped, execution, options, out)

    def _require_used_options(self) -> None:
        """Reject options that the item does not use; `all` passes them to the items that do."""
        if self.item in GRIDS or self.item == ALL:
            return
        given = {
            "dataset": self.dataset is not None and self.item != tab_overhead.LABEL,
            "seeds": self.seeds is not None,
            "extractor": self.extractor is not None,
            "executor": self.executor != "local",
        }
        for name, is_unused in given.items():
            if is_unused:
                items = (*GRIDS, tab_overhead.LABEL) if name == "dataset" else GRIDS
                problem = f"--{name} was given for {self.item}, which does not use it"
                raise UserError(problem, f"it is for {', '.join(items)}", "leave it out")


Plans = dict[str, Plan | None]
"""The plan of each item; None for items that are not a grid of runs."""


def _plan_item(item: str, options: StudyOptions, execution: Execution, *, dry_run: bool) -> Plan | None:
    """Return the plan of a grid, and check that everything it needs is available; a dry run needs nothing."""
    if item == tab_overhead.LABEL:
        config = tab_overhead.configs(options)[0]
        if not dry_run:
            require_available(config)
    if item not in GRIDS:
        return None
    plan = plan_grid(item, options)
    if not dry_run:
        execution.require_ready(plan)
    return plan


def _describe_plans(plans: Plans, execution: Execution, options: StudyOptions) -> str:
    """Return the runs, their state and the cost of every item."""

    def describe(item: str, plan: Plan | None) -> str:
        if plan is not None:
            return describe_plan(plan, execution.runs, options.device, execution.workers)
        if item == tab_overhead.LABEL:
            return tab_overhead.describe_measurements(options)
        return f"{item}: computed directly, no grid of runs"

    return "\n\n".join(describe(item, plan) for item, plan in plans.items())


def _reproduce(plans: Plans, skipped: list[str], execution: Execution, options: StudyOptions, out: Path) -> str:
    texts = [_reproduce_item(item, plan, execution, options, out) for item, plan in plans.items()]
    return "\n\n".join((*texts, *skipped))


def _reproduce_item(item: str, plan: Plan | None, execution: Execution, options: StudyOptions, out: Path) -> str:
    """Compute the record of one item and draw it, or submit its runs; return the text to print."""
    with ProgressDisplay() as progress:
        options = replace(options, progress=progress, directory=out)
        if plan is None:
            result = run_study(item, options)
        else:
            result = explain_stop(plan, execution.runs, partial(execution.run_plan, plan, options))
    if isinstance(result, Submission):
        return _describe_submission(item, result)
    append(out / RECORDS, result)
    return render_record(result, out)


def _describe_submission(item: str, submission: Submission) -> str:
    """List the Slurm jobs, and those that ended early."""
    jobs = (*submission.waiting, *submission.submitted)
    lines = [f"{item}: {len(submission.submitted)} jobs submitted, {len(submission.waiting)} already in the queue"]
    lines += [f"  job {job.id}: {job.task.name} ({job.task.variant})" for job in jobs]
    lines += [f"  job {job.id} ended early: {why}" for job, why in submission.ended_early]
    if submission.waiting:
        lines.append(f"to discard a job that will never run, remove its file, for example {submission.waiting[0].file}")
    return "\n".join((*lines, "run the same command again when they are done"))
