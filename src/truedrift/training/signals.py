"""Stop at the end of a step: SIGTERM, SIGUSR1 and the first SIGINT set a flag; the loop saves and ends.

| signal          | sent by                             | exit status after the checkpoint is saved      |
|-----------------|-------------------------------------|------------------------------------------------|
| SIGTERM SIGUSR1 | a scheduler before it ends the job   | 75 (EX_TEMPFAIL): run the same command again   |
| SIGINT          | a person with Ctrl-C                | 130 (128 + 2); a second one stops immediately  |
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

EXIT_STATUS = 75
"""After SIGTERM or SIGUSR1 and a saved checkpoint. EX_TEMPFAIL of sysexits.h: run the same command again."""

EXIT_STATUS_KEYBOARD = 130
"""After SIGINT and a saved checkpoint: 128 + 2, the status of a program ended by SIGINT."""


class StopSignal:
    """`with StopSignal() as stop:` … `if stop.received:` save, and exit with `stop.exit_status`.

    Python allows signal handlers in the main thread only; in any other thread this does nothing. A shell starts
    background jobs with SIGINT ignored, and then SIGINT stays ignored.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._keyboard = False
        self._previous: dict[int, Any] = {}

    @property
    def exit_status(self) -> int | None:
        """Exit status after the checkpoint is saved; None if no signal was received."""
        if self.received is None:
            return None
        return EXIT_STATUS_KEYBOARD if self.received == "SIGINT" else EXIT_STATUS

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in _signals():
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._keyboard:
            raise KeyboardInterrupt
        self._keyboard = self._keyboard or number == signal.SIGINT
        self.received = self.received or signal.Signals(number).name


def _signals() -> list[int]:
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
    return [n for n in numbers if not (n == signal.SIGINT and signal.getsignal(n) is signal.SIG_IGN)]
