"""Progress with the remaining time on stderr: a bar on a terminal, otherwise one line every 30 seconds."""

from __future__ import annotations

import os
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from truedrift.errors import printable

HEARTBEAT_SECONDS = 30.0


def is_rank_zero() -> bool:
    """Return True in the first process that torchrun started, and without torchrun."""
    return os.environ.get("RANK", "0") == "0"


class ProgressDisplay:
    """A `Progress` callback and context manager; with `quiet=True` (all ranks but 0) it prints nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._notes: dict[str, str] = {}
        self._first_calls: dict[str, tuple[float, float]] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal and not self._quiet:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, what: str, done: float, total: float) -> None:
        if self._quiet:
            return
        if self._bars is not None:
            if what not in self._tasks:
                self._tasks[what] = self._bars.add_task(printable(what), total=total, note=self._notes.get(what, ""))
            self._bars.update(self._tasks[what], completed=done, total=total)
        else:
            self._print_line(what, done, total)

    def set_note(self, what: str, note: str) -> None:
        """Show a short text beside the progress of `what`, until it is replaced."""
        self._notes[what] = note
        if self._bars is not None and what in self._tasks:
            self._bars.update(self._tasks[what], note=note)

    def print_message(self, message: str) -> None:
        """Print a message on its own line, above the bar if there is one."""
        line = f"truedrift: {printable(' '.join(message.split()))}"
        if self._bars is not None:
            self._bars.console.print(line, markup=False, highlight=False)
        elif not self._quiet:
            print(f"{line}\n", end="", file=sys.stderr, flush=True)  # one write

    def _print_line(self, what: str, done: float, total: float) -> None:
        """Print percentage and remaining time, if the last line is 30 seconds old."""
        now = time.monotonic()
        start, done_at_start = self._first_calls.setdefault(what, (now, done))
        if now - self._last_line >= HEARTBEAT_SECONDS and done_at_start < done < total:
            seconds = (now - start) * (total - done) / (done - done_at_start)
            remaining = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
            note = f"; {self._notes[what]}" if self._notes.get(what) else ""
            self.print_message(f"{what}: {done / total:.0%}, about {remaining} left{note}")
            self._last_line = now
