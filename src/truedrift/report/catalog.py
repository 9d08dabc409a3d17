"""Records → files and text: the items, and how a directory of records is rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truedrift.records import (
    RECORDS,
    Baselines,
    BiasCurves,
    FieldBiases,
    Guidance,
    Hyperparameters,
    Illustration,
    ImageGrid,
    Overhead,
    PoolBias,
    Temperature,
    TrainedDigits,
    read,
    readable,
)
from truedrift.report import (
    app_temperature,
    arithmetic,
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
    trained_digits,
)
from truedrift.report.item import Item
from truedrift.validation import mistake


def _of(label: str, kind: type, module: Any) -> Item:
    """The functions of an item's module; it always has `save` and `summary`, and may have the others."""
    beside = {"table": "table", "figure": "draw", "verdicts": "verdicts"}
    known = {field: getattr(module, name) for field, name in beside.items() if hasattr(module, name)}
    return Item(label, kind, module.save, module.summary, **known)


ITEMS: tuple[Item, ...] = (
    _of("fig:illustration", Illustration, fig_illustration),
    _of("fig:bias_loglog", BiasCurves, fig_bias_loglog),
    _of("tab:baselines", Baselines, tab_baselines),
    _of("tab:hyperparams", Hyperparameters, tab_hyperparams),
    _of("tab:main_results", ImageGrid, tab_main_results),
    _of("fig:convergence", ImageGrid, fig_convergence),
    _of("tab:samples_to_fid", ImageGrid, tab_samples_to_fid),
    _of("fig:ablation_trajectory", ImageGrid, fig_ablation_trajectory),
    _of("tab:overhead", Overhead, tab_overhead),
    _of("tab:cifar100", ImageGrid, tab_cifar100),
    _of("normalization", FieldBiases, normalization),
    _of("app:temperature", Temperature, app_temperature),
    _of("guidance", Guidance, guidance),
    _of("arithmetic", ImageGrid, arithmetic),
    _of("temperature-sweep", ImageGrid, temperature_sweep),
    _of("digits", TrainedDigits, trained_digits),
    _of("bias", PoolBias, pool_bias),
)
_KINDS: tuple[type, ...] = tuple(dict.fromkeys(item.kind for item in ITEMS))
LABELS = ", ".join(item.label for item in ITEMS)


def item_of(record: Any) -> Item:
    """The item that renders this record; ValueError if the record names one that is not known."""
    for item in ITEMS:
        if item.draws(record):
            return item
    came = f"a record {type(record).__name__} is of the item {getattr(record, 'item', None)!r}"
    raise mistake(came, f"known are {LABELS}", "take a version of truedrift that knows it")


def latest(directory: Path) -> list[Any]:
    """The last record of every item in the directory, in the order of ITEMS; ValueError where a line is none."""
    path = _file_of(directory)
    found = _last_of_items({kind: read(path, kind) for kind in _KINDS})
    if not found:
        raise mistake(f"{str(path)!r} has no record of a figure or table", f"known are {LABELS}", "name another one")
    return found


def latest_readable(directory: Path) -> tuple[list[Any], int]:
    """As `latest`, over lines that cannot be read, and how many those are; ValueError where no record is left."""
    path = _file_of(directory)
    by_kind: dict[type, tuple[list[Any], dict[int, str]]] = {kind: readable(path, kind) for kind in _KINDS}
    found = _last_of_items({kind: records for kind, (records, _) in by_kind.items()})
    unreadable = {number for _, wrong in by_kind.values() for number in wrong}
    return found or latest(directory), len(unreadable)


def _file_of(directory: Path) -> Path:
    path = directory / RECORDS if directory.is_dir() else directory
    if not path.is_file():
        raise mistake(
            f"{str(directory)!r} holds no {RECORDS}",
            "allowed is a directory that truedrift reproduce or demo wrote",
            "run for example truedrift reproduce fig:bias_loglog",
        )
    return path


def _last_of_items(by_kind: Mapping[type, Sequence[Any]]) -> list[Any]:
    by_item = [[record for record in by_kind[item.kind] if item.draws(record)] for item in ITEMS]
    return [records[-1] for records in by_item if records]
