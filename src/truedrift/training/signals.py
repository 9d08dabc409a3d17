"""Stop at the end of the step: SIGTERM, SIGUSR1 and the first SIGINT only ask for it; the loop saves and ends.

| signal          | sent by                             | exit status after the checkpoint is saved      |
|-----------------|-------------------------------------|------------------------------------------------|
| SIGTERM SIGUSR1 | a scheduler before it takes the node | 75 (EX_TEMPFAIL): run the same command again   |
| SIGINT          | a person with Ctrl-C                | 130 (128 + 2); a second one stops immediately  |
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

EXIT_STATUS = 75
"""After SIGTERM or SIGUSR1 and a saved checkpoint. EX_TEMPFAIL of sysexits.h: run the same command again."""

EXIT_STATUS_KEYBOARD = 130
"""After SIGINT and a saved checkpoint: 128 + 2, as of a program that SIGINT ended."""


class StopSignal:
    """`with Interruption() as interruption:` … `if interruption.asked:` save and end with `interruption.exit_status`.

    Python allows handlers in the main thread alone; in any other this does nothing and is never asked. A shell starts
    a job in the background with SIGINT ignored, and then it stays ignored.
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        self._keyboard = False
        self._process = os.getpid()
        self._previous: dict[int, Any] = {}

    @property
    def exit_status(self) -> int | None:
        """The status to end with after the checkpoint is saved; None if nobody asked."""
        if self.asked is None:
            return None
        return EXIT_STATUS_KEYBOARD if self.asked == "SIGINT" else EXIT_STATUS

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in _signals():
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            _exit_by_signal(number)
        elif number == signal.SIGINT and self._keyboard:
            raise KeyboardInterrupt
        self._keyboard = self._keyboard or number == signal.SIGINT
        self.asked = self.asked or signal.Signals(number).name


def _signals() -> list[int]:
    names = ("SIGTERM", "SIGUSR1", "SIGINT")  # Windows has no SIGUSR1
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [n for n in numbers if not (n == signal.SIGINT and signal.getsignal(n) is signal.SIG_IGN)]


def _exit_by_signal(number: int) -> None:
    """A forked child, such as a worker that loads data, has the handlers too; it ends of the signal all the same."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
