"""Studies by label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from truedrift.experiments import illustration
from truedrift.experiments.study import Setting

STUDIES: dict[str, Callable[[Setting], Any]] = {
    "fig:illustration": illustration.study,
}
"""A study takes its setting and returns one record."""
