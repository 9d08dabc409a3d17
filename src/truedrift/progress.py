"""How far a long computation is: a callback (what, done, total), called now and then; the default says nothing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float, float], None]


def no_progress(what: str, done: float, total: float) -> None:
    """Say nothing."""
