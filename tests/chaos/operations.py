"""Count the file operations of a command inside a directory, and kill the process or fail at one of them.

Counted are: to open a file for writing, to make, rename or remove a file or directory (as the audit events of Python
report them, before they are done), and `os.write`, `os.fsync` and `os.ftruncate`. The operations are logged outside of
the directory, one line each, before they are done.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEED_SPACE = ("open", "write", "mkdir")
"""Operations that fail on a full disk."""


@dataclass(frozen=True)
class AtOperation:
    """What happens at operation number `number`, counted from 1, in the directory `root`; 0: nothing.

    `AtOperation(…)` is called in the new process before the command.
    """

    root: Path
    log: Path
    number: int = 0
    error: int | None = None
    """The error of the operation; None: the process is killed."""
    lasting: bool = False
    """With ENOSPC: later operations that need space fail too, as on a disk that stays full."""
    torn: bool = False
    """If the operation is a write, half of its bytes are written."""
    only: str = ""
    """Count only operations on paths that begin with this text, relative to the root."""

    def __call__(self) -> None:
        """Count from now on."""
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        write, fsync, truncate = os.write, os.fsync, os.ftruncate
        root, done = os.path.realpath(self.root), 0

        def reach(kind: str, path: str, torn: tuple[int, bytes] | None = None) -> None:
            """Count an operation that is about to be done."""
            nonlocal done
            path = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
            if not f"{path}/".startswith(f"{root}/{self.only}"):
                return
            done += 1
            write(log, f"{kind} {os.path.relpath(path, root)}\n".encode())
            if done == self.number or (self.lasting and 0 < self.number < done and kind in NEED_SPACE):
                if torn is not None and self.torn:
                    write(torn[0], torn[1][: len(torn[1]) // 2])
                if self.error is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(self.error, os.strerror(self.error or 0), path)

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)) and arguments[2] & WRITING:
                reach("open", os.fsdecode(arguments[0]))
            elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir"):
                directory = arguments[-1] if event != "os.rename" else arguments[2]
                reach(event.removeprefix("os."), _absolute(arguments[0], directory))

        def counted_write(descriptor: int, content: Any) -> int:
            reach("write", _path_of(descriptor), (descriptor, bytes(content)))
            return write(descriptor, content)

        def counted_fsync(descriptor: int) -> None:
            reach("fsync", _path_of(descriptor))
            fsync(descriptor)

        def counted_truncate(descriptor: int, length: int) -> None:
            reach("truncate", _path_of(descriptor))
            truncate(descriptor, length)

        os.write, os.fsync, os.ftruncate = counted_write, counted_fsync, counted_truncate  # type: ignore[assignment]
        sys.addaudithook(audit)


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _absolute(path: Any, directory: int) -> str:
    """Return the path of an audit event, which may be relative to the descriptor of a directory."""
    name = os.fsdecode(path)
    return f"{_path_of(directory)}/{name}" if directory >= 0 and not os.path.isabs(name) else name


def read_operations(log: Path) -> list[str]:
    """Return the logged operations, such as `write metrics.jsonl`; the last one was about to be done."""
    return log.read_text().splitlines() if log.exists() else []


def last_saved_step(operations: list[str], done: bool) -> int:
    """Return the newest step whose manifest had its name when the process ended, by its operations; 0 without one."""
    complete = operations if done else operations[:-1]
    renamed = [line.split("/")[1] for line in complete if line.startswith("rename") and "manifest.json" in line]
    return max((int(name.removeprefix("step-")) for name in renamed), default=0)


ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES)
