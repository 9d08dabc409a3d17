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
    PoolBias,
    Temperature,
    TrainedDigits,
    read,
)
from truedrift.report import (
    app_temperature,
    fig_bias_loglog,
    fig_illustration,
    guidance,
    normalization,
    pool_bias,
    tab_baselines,
    tab_hyperparams,
    trained_digits,
)
from truedrift.report.item import Item
from truedrift.validation import mistake

ITEMS: tuple[Item, ...] = (
    Item("fig:illustration", Illustration, fig_illustration.save, fig_illustration.summary),
    Item("fig:bias_loglog", BiasCurves, fig_bias_loglog.save, fig_bias_loglog.summary),
    Item("tab:baselines", Baselines, tab_baselines.save, tab_baselines.summary),
    Item("tab:hyperparams", Hyperparameters, tab_hyperparams.save, tab_hyperparams.summary),
    Item("normalization", FieldBiases, normalization.save, normalization.summary),
    Item("app:temperature", Temperature, app_temperature.save, app_temperature.summary),
    Item("guidance", Guidance, guidance.save, guidance.summary),
    Item("digits", TrainedDigits, trained_digits.save, trained_digits.summary),
    Item("bias", PoolBias, pool_bias.save, pool_bias.summary),
)


def item_of(record: Any) -> Item:
    """The item that renders this record."""
    (item,) = (item for item in ITEMS if item.kind is type(record))
    return item


def latest(directory: Path) -> list[Any]:
    """The last record of every item in the directory, in the order of ITEMS; ValueError where there is none."""
    path = directory / RECORDS if directory.is_dir() else directory
    if not path.is_file():
        raise mistake(
            f"{str(directory)!r} holds no {RECORDS}",
            "allowed is a directory that truedrift reproduce or demo wrote",
            "run for example truedrift reproduce fig:bias_loglog",
        )
    by_item: list[list[Any]] = [read(path, item.kind) for item in ITEMS]
    found = [records[-1] for records in by_item if records]
    if not found:
        labels = ", ".join(item.label for item in ITEMS)
        raise mistake(f"{str(path)!r} has no record of a figure or table", f"known are {labels}", "name another one")
    return found
