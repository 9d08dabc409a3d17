"""A plan is a list of runs, each with what the item calls it; its id is a hash of the whole configuration.

Two items that ask for the same run ask for the same id. Unlike the id of a run directory that `truedrift train` chooses
by itself, it holds how long the run is and how it is judged too: a grid compares evaluations, not weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truedrift.experiments.study import Scale
from truedrift.training.config import RunConfig, run_id


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run of a grid."""

    variant: str
    """What the item compares: standard or abc, "row/abc2", "abc/0.5"."""
    config: RunConfig
    called: str | None = None
    """Name of its directory; none: its recipe and id."""

    @property
    def id(self) -> str:
        """Hash of its whole configuration."""
        return run_id(self.config.tree())

    @property
    def name(self) -> str:
        """Of its directory, and of the files beside it."""
        return self.called or f"{self.config.recipe}-{self.id}"

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.config.cadence.steps


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of an item."""

    item: str
    scale: Scale
    data: str
    command: str
    """What a user writes to have it."""
    tasks: tuple[Task, ...]

    @property
    def steps(self) -> int:
        """Of all runs."""
        return sum(task.steps for task in self.tasks)


def distinct(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks; no two of them may be the same run."""
    if len({task.id for task in tasks}) < len(tasks):
        raise AssertionError("two variants of a grid are the same run")
    return tuple(tasks)
