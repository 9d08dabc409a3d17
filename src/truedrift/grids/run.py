"""The data that the runs of a plan are compared with: its features are computed once, before the runs start.

Every worker would begin with them otherwise, all at the same time. On a GPU they take seconds, and are left to the
runs, so that this process holds none of its memory.

A plan is carried out: what it needs is here, what is missing is run, and if all of it is done it is gathered.
"""

from __future__ import annotations

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
    """They are in the cache then."""
    where = resolve_device(device)
    found = build_evaluator(plan.tasks[0].config, device=where) if where.type == "cpu" else None
    if found is not None:
        compute_reference(found.data, found.extractor, split=found.options.split, progress=progress)


Executor = Literal["local", "slurm"]


class RunsFailed(Exception):
    """Runs of a plan ended before their end; the others are done."""

    def __init__(self, failed: list[UnfinishedRun]) -> None:
        super().__init__(f"{len(failed)} runs failed")
        self.failed = failed


class RunsBusy(Exception):
    """Another command works on runs of a plan; the others are done."""

    def __init__(self, busy: list[UnfinishedRun]) -> None:
        super().__init__(f"{len(busy)} runs are another command's")
        self.busy = busy


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where runs live and who runs them."""

    runs: Path = Path("runs/grid")
    executor: Executor = "local"
    workers: int | None = None
    slurm: SlurmOptions = field(default_factory=SlurmOptions)

    def require_able(self, plan: Plan, device: str) -> None:
        """What the plan needs is here: checked before any run starts."""
        self.pool(device)
        if self.executor == "slurm":
            require_slurm()
        require_available(plan)

    def pool(self, device: str) -> Pool:
        """The workers of this machine."""
        return Pool(runs=self.runs, device=device, workers=self.workers)

    def carry_out(self, plan: Plan, setting: StudyOptions) -> ImageGrid | Submission:
        """The record if every run is done; else what stands in the queue, or `RunsFailed`, or `RunsBusy`."""
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
