"""`truedrift reproduce ITEM`: compute and draw a figure or table of the paper, or an additional study."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

from truedrift.cli.options.studies import Reproduce
from truedrift.cli.runs import explain_stop
from truedrift.distributed import resolve_device
from truedrift.errors import UserError, require_choice
from truedrift.grids.estimate import describe_plan
from truedrift.grids.local import Pool
from truedrift.grids.options import Scale, StudyOptions
from truedrift.grids.plan import Plan, require_available
from truedrift.grids.run import Execution, Executor
from truedrift.grids.slurm import Submission
from truedrift.paper import tab_overhead
from truedrift.paper.catalog import GRIDS, REPRODUCIBLE, plan_grid, render_record, run_study
from truedrift.progress_display import ProgressDisplay
from truedrift.records.store import RECORDS, append, writable_directory

ALL = "all"
SCALES, EXECUTORS = get_args(Scale), get_args(Executor)


def prepare(command: Reproduce) -> Callable[[], str]:
    """Check the options, what the runs need, and the directory. No data is loaded."""
    # Check the options.
    require_choice("item", command.item, (*REPRODUCIBLE, ALL))
    require_choice("scale", command.scale, SCALES)
    require_choice("executor", command.executor, EXECUTORS)
    resolve_device(command.device)
    Pool(runs=command.runs, workers=command.workers)  # checks the workers
    _require_used_options(command)
    options = StudyOptions(
        scale=cast("Scale", command.scale),
        seed=command.seed,
        dataset=command.dataset,
        seeds=command.seeds,
        extractor=command.extractor,
        device=command.device,
    )
    executor = cast("Executor", command.executor)
    execution = Execution(runs=command.runs, executor=executor, workers=command.workers, slurm=command.slurm)
    # Plan the runs, and check what they need.
    plans: Plans = {}
    skipped = []
    for item in REPRODUCIBLE if command.item == ALL else (command.item,):
        try:
            plans[item] = _plan_item(item, options, execution, dry_run=command.dry_run)
        except UserError as error:
            if command.item != ALL:
                raise
            skipped.append(f"{item} is skipped: {error}")
    if command.dry_run:
        return partial(_describe_plans, plans, execution, options)
    out = writable_directory(command.out or Path("runs") / f"{command.item.replace(':', '_')}-{command.scale}")
    return partial(_reproduce, plans, skipped, execution, options, out)


def _require_used_options(command: Reproduce) -> None:
    """Reject options that the item does not use; `all` passes them to the items that do."""
    if command.item in GRIDS or command.item == ALL:
        return
    given = {
        "dataset": command.dataset is not None and command.item != tab_overhead.LABEL,
        "seeds": command.seeds is not None,
        "extractor": command.extractor is not None,
        "executor": command.executor != "local",
    }
    for name, is_unused in given.items():
        if is_unused:
            items = (*GRIDS, tab_overhead.LABEL) if name == "dataset" else GRIDS
            problem = f"--{name} was given for {command.item}, which does not use it"
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
