"""Items by label: studies, which compute in this process, and grids, which are plans of runs (`grids.catalog`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from truedrift.experiments import (
    baselines,
    bias_loglog,
    guidance,
    hyperparameters,
    illustration,
    normalization,
    overhead,
    temperature,
    trained_digits,
)
from truedrift.experiments.grids.catalog import GRIDS
from truedrift.experiments.study import Setting
from truedrift.records import made_by

STUDIES: dict[str, Callable[[Setting], Any]] = {
    "fig:illustration": illustration.study,
    "fig:bias_loglog": bias_loglog.study,
    "tab:baselines": baselines.study,
    "tab:hyperparams": hyperparameters.study,
    "normalization": normalization.study,
    "app:temperature": temperature.study,
    "guidance": guidance.study,
    "digits": trained_digits.study,
    "tab:overhead": overhead.study,
}
"""A study takes its setting and returns one record."""


def computed(item: str, setting: Setting) -> Any:
    """The record of a study, with the command that computes it again."""
    return made_by(STUDIES[item](setting), setting.command(item))


ITEMS = (*STUDIES, *GRIDS)
"""Everything that can be reproduced."""
