"""Grids of runs: planned as configurations with content-hash ids, run here or by Slurm, collected into one record.

    item, options → plan → missing runs are run → run directories → record

All items share one directory of runs, so that an item can reuse the runs of another.
"""

from typing import TYPE_CHECKING

from truedrift.grids.slurm_options import SlurmOptions
from truedrift.lazy import lazy_names

if TYPE_CHECKING:
    from truedrift.grids.local import Interrupted, Pool, UnfinishedRun
    from truedrift.grids.options import StudyOptions
    from truedrift.grids.plan import Plan, Task, distinct_tasks, is_done, require_available, steps_taken
    from truedrift.grids.record import EvaluatedStep, ImageGrid, ImageRun
    from truedrift.grids.results import collect_results
    from truedrift.grids.run import Execution, UnfinishedRuns, precompute_reference
    from truedrift.grids.slurm import Job, SlurmTask, Submission, submit

__all__ = [
    "EvaluatedStep",
    "Execution",
    "ImageGrid",
    "ImageRun",
    "Interrupted",
    "Job",
    "Plan",
    "Pool",
    "SlurmOptions",
    "SlurmTask",
    "StudyOptions",
    "Submission",
    "Task",
    "UnfinishedRun",
    "UnfinishedRuns",
    "collect_results",
    "distinct_tasks",
    "is_done",
    "precompute_reference",
    "require_available",
    "steps_taken",
    "submit",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "truedrift.grids.local": (
            "Interrupted",
            "Pool",
            "UnfinishedRun",
        ),
        "truedrift.grids.options": ("StudyOptions",),
        "truedrift.grids.plan": (
            "Plan",
            "Task",
            "distinct_tasks",
            "is_done",
            "require_available",
            "steps_taken",
        ),
        "truedrift.grids.record": (
            "EvaluatedStep",
            "ImageGrid",
            "ImageRun",
        ),
        "truedrift.grids.results": ("collect_results",),
        "truedrift.grids.run": (
            "Execution",
            "UnfinishedRuns",
            "precompute_reference",
        ),
        "truedrift.grids.slurm": (
            "Job",
            "SlurmTask",
            "Submission",
            "submit",
        ),
    },
    __all__,
)
