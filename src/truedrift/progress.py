"""Progress of long computations: a callback (what, done, total) that is called now and then."""

from collections.abc import Callable

Progress = Callable[[str, float, float], None]


def no_progress(what: str, done: float, total: float) -> None:
    """Report nothing."""
