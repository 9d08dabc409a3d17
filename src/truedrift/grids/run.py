"""Carrying out a plan: check what it needs, run what is missing, and collect the record once all runs are done."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from truedrift.distributed import resolve_device
from truedrift.evaluation.reference import compute_reference
from truedrift.grids.local import Pool, UnfinishedRun
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import Plan, is_done, require_available
from truedrift.grids.record import ImageGrid
from truedrift.grids.results import collect_results
from truedrift.grids.slurm import Submission, require_slurm, submit
from truedrift.grids.slurm_options import SlurmOptions
from truedrift.progress import Progress
from truedrift.recipes.evaluator import build_evaluator

Executor = Literal["local", "slurm"]


class UnfinishedRuns(Exception):
    """Some runs of a plan failed, or another command is working on them; the others are done.

    Args:
        runs: The runs that are not done, each with the reason.
    """

    def __init__(self, runs: list[UnfinishedRun]) -> None:
        super().__init__(f"{len(runs)} runs are not done")
        self.runs = runs


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where runs are stored and what executes them.

    Args:
        runs: The directory of the run directories.
        executor: "local" runs them on this machine and waits; "slurm" submits them as jobs.
        workers: Number of local runs at a time; None: one per GPU or core.
        slurm: Resources of every job; ignored by "local".
    """

    runs: Path = Path("runs/grid")
    executor: Executor = "local"
    workers: int | None = None
    slurm: SlurmOptions = field(default_factory=SlurmOptions)

    def require_ready(self, plan: Plan) -> None:
        """Require that everything the plan needs is available, before any run starts."""
        if self.executor == "slurm":
            require_slurm()
        require_available(plan.tasks[0].config)

    def run_plan(self, plan: Plan, setting: StudyOptions) -> ImageGrid | Submission:
        """Run what is missing; return the record, or the jobs in the queue.

        Raises:
            UnfinishedRuns: Some runs are not done.
            Interrupted: A signal asked to stop.
        """
        started = time.monotonic()
        if not all(is_done(task, self.runs) for task in plan.tasks):
            if self.executor == "slurm":
                return submit(plan, self.runs, self.slurm, setting.device)
            precompute_reference(plan, setting.device, setting.progress)
            left = Pool(runs=self.runs, device=setting.device, workers=self.workers).run(plan, setting.progress)
            if left:
                raise UnfinishedRuns(left)
        return collect_results(plan, self.runs, seed=setting.seed, started=started)


def precompute_reference(plan: Plan, device: str, progress: Progress) -> None:
    """Compute the reference features once and cache them, before the runs start.

    Otherwise all workers would compute them at the same time. On a GPU they take seconds and are left to the runs, so
    that this process uses no GPU memory.

    Args:
        plan: The runs, which share one evaluation protocol.
        device: The device of the runs: "auto", "cpu", "cuda" or "mps". On a GPU this does nothing.
        progress: Called after every batch.

    Raises:
        UserError: If the data or the extractor is not available.
    """
    where = resolve_device(device)
    evaluator = build_evaluator(plan.tasks[0].config, device=where) if where.type == "cpu" else None
    if evaluator is not None:
        compute_reference(evaluator.data, evaluator.extractor, split=evaluator.options.split, progress=progress)
