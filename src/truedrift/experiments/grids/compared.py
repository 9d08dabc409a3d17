"""The data that the runs of a plan are compared with: its features are computed once, before the runs start.

Every worker would begin with them otherwise, all at the same time. On a GPU they take seconds, and are left to the
runs, so that this process holds none of its memory.
"""

from __future__ import annotations

from truedrift.evaluation import reference_of
from truedrift.experiments.grids.plan import Plan
from truedrift.progress import Progress
from truedrift.recipes.judging import judge
from truedrift.training.assembly import find_device


def keep_reference(plan: Plan, device: str, progress: Progress) -> None:
    """They are in the cache then."""
    where = find_device(device)
    found = judge(plan.tasks[0].config, device=where) if where.type == "cpu" else None
    if found is not None:
        reference_of(found.data, found.extractor, split=found.options.split, progress=progress)
