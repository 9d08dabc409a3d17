"""A job that ends before its end, with one line and an exit status of its own."""

from __future__ import annotations


class Stop(Exception):
    """What to say and the status to exit with."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
