"""Records → files and text: the items, and how a directory of records is rendered."""

from __future__ import annotations

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
LABELS = ", ".join(item.label for item in ITEMS)


def item_of(record: Any) -> Item:
    """The item that renders this record; ValueError if the record names one that is not known."""
    for item in ITEMS:
        if item.draws(record):
            return item
    came = f"a record {type(record).__name__} is of the item {getattr(record, 'item', None)!r}"
    raise mistake(came, f"known are {LABELS}", "take a version of truedrift that knows it")


def latest(directory: Path) -> list[Any]:
    """The last record of every item in the directory, in the order of ITEMS; ValueError where there is none."""
    path = directory / RECORDS if directory.is_dir() else directory
    if not path.is_file():
        raise mistake(
            f"{str(directory)!r} holds no {RECORDS}",
            "allowed is a directory that truedrift reproduce or demo wrote",
            "run for example truedrift reproduce fig:bias_loglog",
        )
    by_kind: dict[type, list[Any]] = {kind: read(path, kind) for kind in dict.fromkeys(item.kind for item in ITEMS)}
    by_item = [[record for record in by_kind[item.kind] if item.draws(record)] for item in ITEMS]
    found = [records[-1] for records in by_item if records]
    if not found:
        raise mistake(f"{str(path)!r} has no record of a figure or table", f"known are {LABELS}", "name another one")
    return found
