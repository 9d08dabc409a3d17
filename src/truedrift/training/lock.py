"""One process at a time on a run directory: an exclusive lock of the operating system on RUN/lock.

The lock belongs to the open file and not to its content, so that the kernel releases it when its owner dies, by
whatever means. The content, process and host, is there for the message alone. The file is never deleted: a second
process could hold the lock of a deleted file while a third one makes and locks a new one.

An open file is shared with children. Programs that are started do not get it (Python opens files non-inheritable), and
a forked child, such as a worker that loads data, closes its copy at once; else a child that outlives its killed parent
would keep the run locked. Closing a copy does not release the parent's lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import weakref
from pathlib import Path
from types import TracebackType

from truedrift.files import write_all
from truedrift.validation import Mistake, mistake

LOCK = "lock"
_TAKEN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)

if sys.platform == "win32":
    import msvcrt

    _BEHIND = 1 << 30  # Windows locks bytes, and nobody may read locked ones: one far behind the content

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _BEHIND, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Taken(Mistake):
    """Another process works on the run."""


class RunLock:
    """`with RunLock(run_directory):` holds the run; another process that tries gets a `Mistake`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._descriptor: int | None = None

    def __enter__(self) -> RunLock:
        descriptor = self._opened()
        try:
            _lock(descriptor)
            os.ftruncate(descriptor, 0)
            write_all(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        except OSError as error:
            raise self._refusal(descriptor, error) from None
        self._descriptor = descriptor
        _HELD.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _opened(self) -> int:
        path = self.directory / LOCK
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            came = f"the run directory {str(self.directory)!r} cannot be locked ({error.strerror})"
            raise mistake(came, "allowed is a directory that can be written", "make it so or name another") from None

    def _refusal(self, descriptor: int, error: OSError) -> Mistake:
        """The descriptor closed, and in words why it does not have the lock."""
        owner = os.pread(descriptor, 1000, 0) if hasattr(os, "pread") else os.read(descriptor, 1000)
        os.close(descriptor)
        if error.errno in _TAKEN:
            return Taken(
                f"the run directory {str(self.directory)!r} is in use by {_owner(owner)}; "
                "allowed is one process at a time; wait until it ends, stop it, or name another directory"
            )
        return mistake(
            f"the run directory {str(self.directory)!r} cannot be locked ({error.strerror})",
            "allowed is a file system with file locks and some space",
            "name a directory on another one, or have it mounted with flock",
        )

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _HELD.discard(self)


def is_taken(directory: Path) -> bool:
    """Whether another process works on the run; what cannot be locked for another reason is not taken."""
    if not (directory / LOCK).exists():
        return False
    try:
        with RunLock(directory):
            return False
    except Mistake as error:
        return isinstance(error, Taken)


def _owner(content: bytes) -> str:
    pid, _, host = content.decode(errors="replace").strip().partition(" ")
    return f"process {pid} on {host}" if pid and host else "another process"


_HELD: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for held in list(_HELD):
        with contextlib.suppress(OSError):
            held._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
