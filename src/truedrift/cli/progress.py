"""Progress with the time left: a bar on a terminal, a line every half minute elsewhere, on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

HEARTBEAT_SECONDS = 30.0


class ProgressDisplay:
    """A `Progress` to be called inside of `with`; a quiet one says nothing, for all processes but the first."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, tuple[float, float]] = {}
        self._told = time.monotonic()

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._bars = Bars(*columns, console=self._console, transient=True)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, what: str, done: float, total: float) -> None:
        if self._quiet:
            return
        if self._bars is not None:
            if what not in self._tasks:
                self._tasks[what] = self._bars.add_task(what, total=total)
            self._bars.update(self._tasks[what], completed=done, total=total)
        else:
            self._line(what, done, total)

    def say(self, sentence: str) -> None:
        """A line of its own, above the bar if there is one."""
        if self._quiet:
            return
        if self._bars is not None:
            self._bars.console.print(f"truedrift: {sentence}", markup=False, highlight=False)
        else:
            print(f"truedrift: {sentence}", file=sys.stderr, flush=True)

    def _line(self, what: str, done: float, total: float) -> None:
        now = time.monotonic()
        since, already = self._started.setdefault(what, (now, done))
        if now - self._told >= HEARTBEAT_SECONDS and already < done < total:
            left = (now - since) * (total - done) / (done - already)
            print(
                f"truedrift: {what}: {done / total:.0%}, about {_format_seconds(left)} left",
                file=sys.stderr,
                flush=True,
            )
            self._told = now


def _format_seconds(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
