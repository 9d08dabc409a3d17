"""All items by label: studies (computed in this process), grids (plans of runs), and the rendering of their records.

    label → study or grid → record → item → files and text

The module of an item is imported on use, so that a study does not wait for the imports of training.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.grids.benchmarks import IMAGES, benchmark_setting
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import Plan, distinct_tasks
from truedrift.records.provenance import with_command
from truedrift.records.store import RECORDS, read, read_lenient
from truedrift.report.item import Item

ITEMS: Mapping[str, str] = {
    "fig:illustration": "fig_illustration",
    "fig:bias_loglog": "fig_bias_loglog",
    "tab:baselines": "tab_baselines",
    "tab:hyperparams": "tab_hyperparams",
    "tab:main_results": "tab_main_results",
    "fig:convergence": "fig_convergence",
    "tab:samples_to_fid": "tab_samples_to_fid",
    "fig:ablation_trajectory": "fig_ablation_trajectory",
    "tab:overhead": "tab_overhead",
    "tab:cifar100": "tab_cifar100",
    "normalization": "normalization",
    "app:temperature": "app_temperature",
    "guidance": "guidance",
    "equilibrium": "equilibrium",
    "arithmetic": "arithmetic",
    "temperature-sweep": "temperature_sweep",
    "matching": "matching",
    "images": "images",
    "digits": "digits",
    "arrays": "arrays",
    "bias": "pool_bias",
}
"""Label → module of this package that defines its `ITEM`, in the order of the report."""
PRINTED: Mapping[str, str] = {
    "fig:illustration": "Figure 1",
    "fig:bias_loglog": "Figure 2",
    "fig:convergence": "Figure 3",
    "fig:ablation_trajectory": "Figure 4",
    "tab:main_results": "Table 1",
    "tab:samples_to_fid": "Table 2",
    "tab:overhead": "Table 3",
    "tab:baselines": "Table 5",
    "tab:hyperparams": "Table 6",
    "tab:cifar100": "Table 7",
    "app:temperature": "Appendix D",
}
"""Label → number printed in the paper. Table 4 is the table of notation. Our own studies have no number."""
STUDIES = (
    *("fig:illustration", "fig:bias_loglog", "tab:baselines", "tab:hyperparams", "normalization", "app:temperature"),
    *("guidance", "equilibrium", "digits", "arrays", "tab:overhead"),
)
"""Labels of the items whose module has a function `study`, which takes options and returns one record."""
GRIDS: Mapping[str, str] = {
    "tab:main_results": "tab_main_results",
    "fig:convergence": "tab_main_results",
    "tab:samples_to_fid": "tab_main_results",
    "fig:ablation_trajectory": "fig_ablation_trajectory",
    "tab:cifar100": "tab_main_results",
    "arithmetic": "arithmetic",
    "temperature-sweep": "temperature_sweep",
    "matching": "matching",
    "images": "images",
}
"""Label → module with the function `tasks`, which returns the runs of the grid."""
DATA_SETS = {"tab:cifar100": ("cifar100",), "matching": ("digits", "fashion-mnist"), "images": ("cifar10",)}
"""Label of a grid → its data sets, where these are not `IMAGES`."""
REPRODUCIBLE = (*STUDIES, *GRIDS)
"""All labels that `truedrift reproduce` accepts."""
LABELS = ", ".join(ITEMS)


def _load_module(name: str) -> Any:
    return import_module(f"truedrift.paper.{name}")


@cache
def load_items() -> tuple[Item, ...]:
    """Import the modules of all items; return the items in the order of the report."""
    return tuple(_load_module(name).ITEM for name in ITEMS.values())


def run_study(item: str, setting: StudyOptions) -> Any:
    """Compute the record of a study, and add the command that computes it again."""
    return with_command(_load_module(ITEMS[item]).study(setting), setting.command(item))


def plan_grid(item: str, setting: StudyOptions) -> Plan:
    """Return the plan of the item: all its runs with these options.

    Raises:
        UserError: The options are not allowed for this item.
    """
    benchmark = benchmark_setting(setting, DATA_SETS.get(item, IMAGES), item)
    tasks = distinct_tasks(_load_module(GRIDS[item]).tasks(benchmark))
    return Plan(item=item, scale=setting.scale, data=benchmark.data, command=setting.command(item), tasks=tasks)


def find_item(record: Any) -> Item:
    """Return the item that shows this record.

    Raises:
        UserError: The record has the label of an unknown item.
    """
    for item in load_items():
        if item.matches(record):
            return item
    problem = f"a record {type(record).__name__} has the unknown item {getattr(record, 'item', None)!r}"
    raise UserError(problem, f"known items: {LABELS}", "use a version of truedrift that has this item")


def latest(directory: Path) -> list[Any]:
    """Return the last record of every item in a directory or file, in the order of the report.

    Raises:
        UserError: There is no file, no record of an item, or a line that is not a record.
    """
    path = _records_path(directory)
    records = _last_of_items(read(path, *_record_kinds()))
    if not records:
        problem = f"{str(path)!r} has no record of a figure or table"
        raise UserError(problem, f"known items: {LABELS}", "pass another file")
    return records


def latest_readable(directory: Path) -> tuple[list[Any], int]:
    """Return the same as `latest` but skip unreadable lines, and return their number.

    Raises:
        UserError: No record is readable.
    """
    records, problems = read_lenient(_records_path(directory), *_record_kinds())
    return _last_of_items(records) or latest(directory), len(problems)


def _record_kinds() -> tuple[type[Any], ...]:
    return tuple(dict.fromkeys(item.record for item in load_items()))


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
    by_item = [[record for record in records if item.matches(record)] for item in load_items()]
    return [matching[-1] for matching in by_item if matching]


def render_record(record: Any, directory: Path) -> str:
    """Write the files of the record; return its text and the paths."""
    item = find_item(record)
    paths = item.save(record, directory)
    return "\n".join((item.summary(record), "", *(f"written: {path}" for path in paths)))
