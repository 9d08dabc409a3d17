"""Carrying out a plan: check what it needs, run what is missing, and collect the record once all runs are done."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from truedrift.evaluation.reference import compute_reference
from truedrift.grids.local import Pool, UnfinishedRun
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import Plan, require_available, run_path
from truedrift.grids.results import ImageGrid, collect_results
from truedrift.grids.slurm import SlurmOptions, Submission, require_slurm, submit
from truedrift.grids.status import is_done
from truedrift.progress import Progress
from truedrift.recipes.evaluator import build_evaluator
from truedrift.training.setup import resolve_device


def precompute_reference(plan: Plan, device: str, progress: Progress) -> None:
    """Compute the reference features once and cache them, before the runs start.

    Otherwise all workers would compute them at the same time. On a GPU they take seconds and are left to the runs, so
    that this process uses no GPU memory.
    """
    where = resolve_device(device)
    evaluator = build_evaluator(plan.tasks[0].config, device=where) if where.type == "cpu" else None
    if evaluator is not None:
        compute_reference(evaluator.data, evaluator.extractor, split=evaluator.options.split, progress=progress)


Executor = Literal["local", "slurm"]


class RunsFailed(Exception):
    """Some runs of a plan failed; the others are done."""

    def __init__(self, failed: list[UnfinishedRun]) -> None:
        super().__init__(f"{len(failed)} runs failed")
        self.failed = failed


class RunsBusy(Exception):
    """Another command is working on some runs of a plan; the others are done."""

    def __init__(self, busy: list[UnfinishedRun]) -> None:
        super().__init__(f"{len(busy)} runs belong to another command")
        self.busy = busy


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where runs are stored and what executes them."""

    runs: Path = Path("runs/grid")
    executor: Executor = "local"
    workers: int | None = None
    slurm: SlurmOptions = field(default_factory=SlurmOptions)

    def require_ready(self, plan: Plan, device: str) -> None:
        """Require that everything the plan needs is available, before any run starts."""
        self.pool(device)
        if self.executor == "slurm":
            require_slurm()
        require_available(plan)

    def pool(self, device: str) -> Pool:
        """Return the pool of workers on this machine."""
        return Pool(runs=self.runs, device=device, workers=self.workers)

    def run_plan(self, plan: Plan, setting: StudyOptions) -> ImageGrid | Submission:
        """Run what is missing; return the record, or the jobs in the queue.

        Raises:
            RunsFailed: Some runs failed.
            RunsBusy: Another command is working on some runs.
        """
        started = time.monotonic()
        if not all(is_done(task, run_path(task, self.runs)) for task in plan.tasks):
            if self.executor == "slurm":
                return submit(plan, self.runs, self.slurm, setting.device)
            precompute_reference(plan, setting.device, setting.progress)
            _require_done(self.pool(setting.device).run(plan, setting.progress))
        return collect_results(plan, self.runs, seed=setting.seed, started=started)


def _require_done(left: list[UnfinishedRun]) -> None:
    failed = [each for each in left if not each.busy]
    if failed:
        raise RunsFailed(failed)
    if left:
        raise RunsBusy(left)
