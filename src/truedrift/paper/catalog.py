"""Grids by label: which runs each item is made of, and which data sets it may be tried on.

Items by label: studies, which compute in this process, and grids, which are plans of runs (`grids.catalog`).

Records → files and text: the items, and how a directory of records is rendered.

A record as files and text: what every command that makes or reads records does with one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.grids.benchmarks import IMAGES, BenchmarkSetting, benchmark_setting
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import Plan, Task, distinct_tasks
from truedrift.grids.results import ImageGrid
from truedrift.paper import (
    app_temperature,
    arithmetic,
    digits,
    fig_ablation_trajectory,
    fig_bias_loglog,
    fig_convergence,
    fig_illustration,
    guidance,
    normalization,
    pool_bias,
    tab_baselines,
    tab_cifar100,
    tab_hyperparams,
    tab_main_results,
    tab_overhead,
    tab_samples_to_fid,
    temperature_sweep,
)
from truedrift.paper.app_temperature import Temperature
from truedrift.paper.digits import TrainedDigits
from truedrift.paper.fig_bias_loglog import BiasCurves
from truedrift.paper.fig_illustration import Illustration
from truedrift.paper.guidance import Guidance
from truedrift.paper.normalization import FieldBiases
from truedrift.paper.pool_bias import PoolBias
from truedrift.paper.tab_baselines import Baselines
from truedrift.paper.tab_hyperparams import Hyperparameters
from truedrift.paper.tab_overhead import Overhead
from truedrift.records.provenance import with_command
from truedrift.records.store import RECORDS, read, read_lenient
from truedrift.report.item import Item


@dataclass(frozen=True)
class Grid:
    """What runs on a ground, and on which data sets; the first that a scale has is taken if none is named."""

    tasks: Callable[[BenchmarkSetting], list[Task]]
    data_sets: tuple[str, ...] = IMAGES


GRIDS: Mapping[str, Grid] = {
    "tab:main_results": Grid(tab_main_results.tasks),
    "fig:convergence": Grid(tab_main_results.tasks),
    "tab:samples_to_fid": Grid(tab_main_results.tasks),
    "fig:ablation_trajectory": Grid(fig_ablation_trajectory.tasks),
    "tab:cifar100": Grid(tab_main_results.tasks, ("cifar100",)),
    "arithmetic": Grid(arithmetic.tasks),
    "temperature-sweep": Grid(temperature_sweep.tasks),
}


def plan_grid(item: str, setting: StudyOptions) -> Plan:
    """The runs of the item in that setting."""
    grid = GRIDS[item]
    on = benchmark_setting(setting, grid.data_sets, item)
    tasks = distinct_tasks(grid.tasks(on))
    return Plan(item=item, scale=setting.scale, data=on.data, command=setting.command(item), tasks=tasks)


STUDIES: dict[str, Callable[[StudyOptions], Any]] = {
    "fig:illustration": fig_illustration.study,
    "fig:bias_loglog": fig_bias_loglog.study,
    "tab:baselines": tab_baselines.study,
    "tab:hyperparams": tab_hyperparams.study,
    "normalization": normalization.study,
    "app:temperature": app_temperature.study,
    "guidance": guidance.study,
    "digits": digits.study,
    "tab:overhead": tab_overhead.study,
}
"""A study takes its setting and returns one record."""


def run_study(item: str, setting: StudyOptions) -> Any:
    """The record of a study, with the command that computes it again."""
    return with_command(STUDIES[item](setting), setting.command(item))


REPRODUCIBLE = (*STUDIES, *GRIDS)
"""Everything that can be reproduced."""


def _item(label: str, kind: type, module: Any) -> Item:
    """The functions of an item's module; it always has `save` and `summary`, and may have the others."""
    beside = {"table": "table", "figure": "draw", "verdicts": "verdicts"}
    known = {field: getattr(module, name) for field, name in beside.items() if hasattr(module, name)}
    return Item(label, kind, module.save, module.summary, **known)


ITEMS: tuple[Item, ...] = (
    _item("fig:illustration", Illustration, fig_illustration),
    _item("fig:bias_loglog", BiasCurves, fig_bias_loglog),
    _item("tab:baselines", Baselines, tab_baselines),
    _item("tab:hyperparams", Hyperparameters, tab_hyperparams),
    _item("tab:main_results", ImageGrid, tab_main_results),
    _item("fig:convergence", ImageGrid, fig_convergence),
    _item("tab:samples_to_fid", ImageGrid, tab_samples_to_fid),
    _item("fig:ablation_trajectory", ImageGrid, fig_ablation_trajectory),
    _item("tab:overhead", Overhead, tab_overhead),
    _item("tab:cifar100", ImageGrid, tab_cifar100),
    _item("normalization", FieldBiases, normalization),
    _item("app:temperature", Temperature, app_temperature),
    _item("guidance", Guidance, guidance),
    _item("arithmetic", ImageGrid, arithmetic),
    _item("temperature-sweep", ImageGrid, temperature_sweep),
    _item("digits", TrainedDigits, digits),
    _item("bias", PoolBias, pool_bias),
)
_KINDS: tuple[type, ...] = tuple(dict.fromkeys(item.kind for item in ITEMS))
LABELS = ", ".join(item.label for item in ITEMS)


def find_item(record: Any) -> Item:
    """The item that renders this record; ValueError if the record names one that is not known."""
    for item in ITEMS:
        if item.draws(record):
            return item
    came = f"a record {type(record).__name__} is of the item {getattr(record, 'item', None)!r}"
    raise UserError(came, f"known are {LABELS}", "take a version of truedrift that knows it")


def latest(directory: Path) -> list[Any]:
    """The last record of every item in the directory, in the order of ITEMS; ValueError where a line is none."""
    path = _file_of(directory)
    found = _last_of_items({kind: read(path, kind) for kind in _KINDS})
    if not found:
        raise UserError(f"{str(path)!r} has no record of a figure or table", f"known are {LABELS}", "name another one")
    return found


def latest_readable(directory: Path) -> tuple[list[Any], int]:
    """As `latest`, over lines that cannot be read, and how many those are; ValueError where no record is left."""
    path = _file_of(directory)
    by_kind: dict[type, tuple[list[Any], dict[int, str]]] = {kind: read_lenient(path, kind) for kind in _KINDS}
    found = _last_of_items({kind: records for kind, (records, _) in by_kind.items()})
    unreadable = {number for _, wrong in by_kind.values() for number in wrong}
    return found or latest(directory), len(unreadable)


def _file_of(directory: Path) -> Path:
    path = directory / RECORDS if directory.is_dir() else directory
    if not path.is_file():
        raise UserError(
            f"{str(directory)!r} holds no {RECORDS}",
            "allowed is a directory that truedrift reproduce or demo wrote",
            "run for example truedrift reproduce fig:bias_loglog",
        )
    return path


def _last_of_items(by_kind: Mapping[type, Sequence[Any]]) -> list[Any]:
    by_item = [[record for record in by_kind[item.kind] if item.draws(record)] for item in ITEMS]
    return [records[-1] for records in by_item if records]


def render_record(record: Any, directory: Path) -> str:
    """The files of the record are written, and its text is returned with their paths."""
    item = find_item(record)
    paths = item.save(record, directory)
    return "\n".join((item.summary(record), "", *(f"written: {path}" for path in paths)))
