"""All items by label: studies, which run in this process, grids, which are plans of runs, and how records are rendered.

label → study or grid → record → item → files and text
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.grids.benchmarks import IMAGES, BenchmarkSetting, benchmark_setting
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import Plan, Task, distinct_tasks
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
from truedrift.records.provenance import with_command
from truedrift.records.store import RECORDS, read, read_lenient
from truedrift.report.item import Item

GRIDS: Mapping[str, Callable[[BenchmarkSetting], list[Task]]] = {
    "tab:main_results": tab_main_results.tasks,
    "fig:convergence": tab_main_results.tasks,
    "tab:samples_to_fid": tab_main_results.tasks,
    "fig:ablation_trajectory": fig_ablation_trajectory.tasks,
    "tab:cifar100": tab_main_results.tasks,
    "arithmetic": arithmetic.tasks,
    "temperature-sweep": temperature_sweep.tasks,
}
"""Label → function that returns the runs of a grid."""
DATA_SETS = {"tab:cifar100": ("cifar100",)}
"""Label → its data sets, where these are not `IMAGES`."""


def plan_grid(item: str, setting: StudyOptions) -> Plan:
    """Return the plan of the item: all its runs with these options.

    Raises:
        UserError: The options are not allowed for this item.
    """
    benchmark = benchmark_setting(setting, DATA_SETS.get(item, IMAGES), item)
    tasks = distinct_tasks(GRIDS[item](benchmark))
    return Plan(item=item, scale=setting.scale, data=benchmark.data, command=setting.command(item), tasks=tasks)


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
"""Label → study, which takes options and returns one record."""


def run_study(item: str, setting: StudyOptions) -> Any:
    """Compute the record of a study, and add the command that computes it again."""
    return with_command(STUDIES[item](setting), setting.command(item))


REPRODUCIBLE = (*STUDIES, *GRIDS)
"""All labels that `truedrift reproduce` accepts."""


ITEMS: tuple[Item, ...] = (
    fig_illustration.ITEM,
    fig_bias_loglog.ITEM,
    tab_baselines.ITEM,
    tab_hyperparams.ITEM,
    tab_main_results.ITEM,
    fig_convergence.ITEM,
    tab_samples_to_fid.ITEM,
    fig_ablation_trajectory.ITEM,
    tab_overhead.ITEM,
    tab_cifar100.ITEM,
    normalization.ITEM,
    app_temperature.ITEM,
    guidance.ITEM,
    arithmetic.ITEM,
    temperature_sweep.ITEM,
    digits.ITEM,
    pool_bias.ITEM,
)
_KINDS: tuple[type[Any], ...] = tuple(dict.fromkeys(item.record for item in ITEMS))
LABELS = ", ".join(item.label for item in ITEMS)


def find_item(record: Any) -> Item:
    """Return the item that shows this record.

    Raises:
        UserError: The record has the label of an unknown item.
    """
    for item in ITEMS:
        if item.matches(record):
            return item
    problem = f"a record {type(record).__name__} has the unknown item {getattr(record, 'item', None)!r}"
    raise UserError(problem, f"known items: {LABELS}", "use a version of truedrift that has this item")


def latest(directory: Path) -> list[Any]:
    """Return the last record of every item in a directory or file, in the order of ITEMS.

    Raises:
        UserError: There is no file, no record of an item, or a line that is not a record.
    """
    path = _records_path(directory)
    records = _last_of_items(read(path, *_KINDS))
    if not records:
        problem = f"{str(path)!r} has no record of a figure or table"
        raise UserError(problem, f"known items: {LABELS}", "pass another file")
    return records


def latest_readable(directory: Path) -> tuple[list[Any], int]:
    """Return the same as `latest` but skip unreadable lines, and return their number.

    Raises:
        UserError: No record is readable.
    """
    records, problems = read_lenient(_records_path(directory), *_KINDS)
    return _last_of_items(records) or latest(directory), len(problems)


def _records_path(directory: Path) -> Path:
    path = directory / RECORDS if directory.is_dir() else directory
    if not path.is_file():
        raise UserError(
            f"{str(directory)!r} contains no {RECORDS}",
            "must be a directory written by truedrift reproduce or demo",
            "run for example truedrift reproduce fig:bias_loglog",
        )
    return path


def _last_of_items(records: Sequence[Any]) -> list[Any]:
    by_item = [[record for record in records if item.matches(record)] for item in ITEMS]
    return [matching[-1] for matching in by_item if matching]


def render_record(record: Any, directory: Path) -> str:
    """Write the files of the record; return its text and the paths."""
    item = find_item(record)
    paths = item.save(record, directory)
    return "\n".join((item.summary(record), "", *(f"written: {path}" for path in paths)))
