"""Grids by label: which runs each item is made of, and which data sets it may be tried on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from truedrift.experiments.grids import ablation, arithmetic, main_results, temperature_sweep
from truedrift.experiments.grids.grounds import Ground, ground
from truedrift.experiments.grids.plan import Plan, Task, distinct
from truedrift.experiments.study import Setting

IMAGES = ("digits", "fashion-mnist", "cifar10")


@dataclass(frozen=True)
class Grid:
    """What runs on a ground, and on which data sets; the first that a scale has is taken if none is named."""

    tasks: Callable[[Ground], list[Task]]
    data_sets: tuple[str, ...] = IMAGES


GRIDS: Mapping[str, Grid] = {
    "tab:main_results": Grid(main_results.tasks),
    "fig:convergence": Grid(main_results.tasks),
    "tab:samples_to_fid": Grid(main_results.tasks),
    "fig:ablation_trajectory": Grid(ablation.tasks),
    "tab:cifar100": Grid(main_results.tasks, ("cifar100",)),
    "arithmetic": Grid(arithmetic.tasks),
    "temperature-sweep": Grid(temperature_sweep.tasks),
}


def planned(item: str, setting: Setting) -> Plan:
    """The runs of the item in that setting."""
    grid = GRIDS[item]
    on = ground(setting, grid.data_sets, item)
    tasks = distinct(grid.tasks(on))
    return Plan(item=item, scale=setting.scale, data=on.data, command=setting.command(item), tasks=tasks)
