"""`truedrift reproduce ITEM`: a figure or table of the paper, or a study of ours, by one command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from truedrift.cli.progress import Shown
from truedrift.experiments.catalog import STUDIES
from truedrift.experiments.study import Scale, Setting
from truedrift.records import RECORDS, append, writable_directory
from truedrift.report.catalog import item_of
from truedrift.validation import require_choice


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Compute a figure or table of the paper, or a study beyond it, and draw it.

    The result is a record in DIR/records.jsonl, and files made of it. Monte Carlo that is interrupted goes on where it
    was when the same command runs again.

    Try it:
      truedrift reproduce fig:bias_loglog
      truedrift reproduce tab:baselines --scale smoke
      truedrift reproduce all --scale smoke --out runs/everything
    """

    item: Annotated[str, tyro.conf.Positional]
    """Label of the figure or table, name of the study, or `all`."""

    scale: Scale = "cpu"
    """smoke: seconds; cpu: minutes on two cores; paper: the paper's own size."""

    seed: int = 0
    """Seed of everything that is drawn."""

    out: Path | None = None
    """Directory of records, figures and tables; runs/ITEM-SCALE if none is named."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and the directory."""
        require_choice("item", self.item, (*STUDIES, "all"))
        items = tuple(STUDIES) if self.item == "all" else (self.item,)
        setting = Setting(scale=self.scale, seed=self.seed)
        out = self.out or Path("runs") / f"{self.item.replace(':', '_')}-{self.scale}"
        return partial(_reproduce, items, setting, writable_directory(out))


def _reproduce(items: tuple[str, ...], setting: Setting, out: Path) -> str:
    return "\n\n".join(_one(item, setting, out) for item in items)


def _one(item: str, setting: Setting, out: Path) -> str:
    with Shown() as progress:
        record = STUDIES[item](Setting(scale=setting.scale, seed=setting.seed, progress=progress, directory=out))
    append(out / RECORDS, record)
    return rendered(record, out)


def rendered(record: object, out: Path) -> str:
    """The files of the record are written, and its text is returned with their paths."""
    item = item_of(record)
    paths = item.save(record, out)
    return "\n".join((item.summary(record), "", *(f"written: {path}" for path in paths)))
