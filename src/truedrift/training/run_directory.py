"""One process at a time on a run directory: an exclusive lock of the operating system on RUN/lock.

The lock belongs to the open file and not to its content, so that the kernel releases it when its owner dies, by
whatever means. The content, process and host, is there for the message alone. The file is never deleted: a second
process could hold the lock of a deleted file while a third one makes and locks a new one.

An open file is shared with children. Programs that are started do not get it (Python opens files non-inheritable), and
a forked child, such as a worker that loads data, closes its copy at once; else a child that outlives its killed parent
would keep the run locked. Closing a copy does not release the parent's lock.

A run directory: config.json says what it is, history.jsonl who worked on it and when.

    RUN/config.json  metrics.jsonl  history.jsonl  lock  checkpoints/step-N/  samples/  incidents/  tensorboard/

The same command finds its run and goes on; another configuration in that directory is refused with the fields that
differ. Only the first of several processes writes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from truedrift._version import __version__
from truedrift.data.samples import Samples
from truedrift.errors import UserError
from truedrift.options import differences, from_dict
from truedrift.records.provenance import commit
from truedrift.storage import write_all, write_atomically
from truedrift.training.config import RunConfig, identity, run_id

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


class RunInUse(UserError):
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
            raise UserError(came, "allowed is a directory that can be written", "make it so or name another") from None

    def _refusal(self, descriptor: int, error: OSError) -> UserError:
        """The descriptor closed, and in words why it does not have the lock."""
        owner = os.pread(descriptor, 1000, 0) if hasattr(os, "pread") else os.read(descriptor, 1000)
        os.close(descriptor)
        if error.errno in _TAKEN:
            return RunInUse(
                f"the run directory {str(self.directory)!r} is in use by {_owner(owner)}; "
                "allowed is one process at a time; wait until it ends, stop it, or name another directory"
            )
        return UserError(
            f"the run directory {str(self.directory)!r} cannot be locked ({error.strerror})",
            "allowed is a file system with file locks and some space",
            "name a directory on another one, or have it mounted with flock",
        )

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _HELD.discard(self)


def is_locked(directory: Path) -> bool:
    """Whether another process works on the run; what cannot be locked for another reason is not taken."""
    if not (directory / LOCK).exists():
        return False
    try:
        with RunLock(directory):
            return False
    except UserError as error:
        return isinstance(error, RunInUse)


def _owner(content: bytes) -> str:
    pid, _, host = content.decode(errors="replace").strip().partition(" ")
    return f"process {pid} on {host}" if pid and host else "another process"


_HELD: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _release_in_child() -> None:
    for held in list(_HELD):
        with contextlib.suppress(OSError):
            held._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)

SCHEMA = 1
CONFIG = "config.json"
METRICS = "metrics.jsonl"
HISTORY = "history.jsonl"
SAMPLES = "samples"
INCIDENTS = "incidents"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class RunDirectory:
    """Where a run lives, and what it is."""

    path: Path
    config: RunConfig
    parts: Mapping[str, str]
    """Names of the parts that are Python objects of the user's."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Of a run that was opened: hash, sample shape and class names of what it is trained on."""

    @property
    def id(self) -> str:
        """Of what decides its steps; checkpoints carry it."""
        return run_id({"config": identity(self.config.tree()), "parts": dict(self.parts)})

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are."""
        return self.path / CHECKPOINTS

    def require_own(self, samples: Samples) -> None:
        """The directory is new, empty, or holds a run of this configuration and data."""
        if (self.path / CONFIG).exists():
            _require_same(self.path, _read(self.path), self._tree(samples))
        elif self.path.is_dir():
            self._require_empty()

    def begin(self, samples: Samples) -> None:
        """Write config.json; one that is there must be of the same run, and takes over what may change."""
        self.require_own(samples)
        if not (self.path / CONFIG).exists():
            self._write(self._tree(samples) | {"version": __version__, "commit": commit()})
            return
        there = _read(self.path)
        changed = differences(there["config"], _as_json(self.config.tree()))
        if changed:
            self._write(there | {"config": self.config.tree()})
            self.note("changed", options=changed)

    def _write(self, tree: Mapping[str, Any]) -> None:
        content = json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
        with write_errors_as_user_errors(self.path):
            write_atomically(self.path / CONFIG, content.encode())

    def _tree(self, samples: Samples) -> dict[str, Any]:
        data = {
            "sha256": samples.digest(),
            "sample_shape": list(samples.sample_shape),
            "classes": list(samples.classes),
        }
        return {"schema": SCHEMA, "config": self.config.tree(), "parts": dict(self.parts), "data": data}

    def _require_empty(self) -> None:
        """A directory that holds something else is not filled with a run."""
        others = [
            entry.name for entry in self.path.iterdir() if entry.name != "lock" and not entry.name.startswith(".")
        ]
        if others:
            raise UserError(
                f"the directory {str(self.path)!r} holds {sorted(others)[0]!r} and no {CONFIG}",
                "allowed is a run or an empty directory",
                "name another one with --out",
            )

    def note(self, event: str, **facts: Any) -> None:
        """Add a line to the history."""
        entry = {
            "event": event,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": socket.gethostname(),
            "process": os.getpid(),
            "version": __version__,
            **facts,
        }
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with write_errors_as_user_errors(self.path), (self.path / HISTORY).open("ab+") as file:
            file.write(_end_torn_line(file) + line.encode())


def _end_torn_line(file: BinaryIO) -> bytes:
    """What a kill in mid-append left is ended, so that it spoils no other line."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - 1))
    return b"" if file.read() in (b"", b"\n") else b"\n"


@contextmanager
def write_errors_as_user_errors(path: Path) -> Iterator[None]:
    """A disk that is full, gone or read-only is told in one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the run directory {str(path)!r} cannot be written ({error.strerror or error})",
            "allowed is a place to write to, with room",
            "make room or make it writable, and run the same command again",
        ) from None


def make_run_directory(path: Path) -> Path:
    """The directory, made if it is missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise UserError(
            f"the run directory {str(path)!r} cannot be made ({reason})",
            "allowed is a place to write to",
            "name another",
        ) from None
    return path


def open_run(path: Path) -> RunDirectory:
    """The run in that directory, as its config.json tells."""
    tree = _read(path)
    try:
        config = from_dict(RunConfig, tree["config"])
        data = {"classes": list(tree["data"]["classes"]), "sample_shape": list(tree["data"]["sample_shape"])}
    except UserError as error:
        raise error.with_prefix(repr(str(path / CONFIG))) from None
    except (KeyError, TypeError) as error:
        raise _unreadable(path / CONFIG, error) from None
    return RunDirectory(path, config, tree["parts"], tree["data"] | data)


def is_run(path: Path) -> bool:
    """Whether the directory is a run; a folder of `save_pretrained` has a config.json too, but none of these."""
    allowed = "allowed is a run, or a folder of weights"
    if not path.is_dir():
        came = "is a file" if path.exists() else "does not exist"
        raise UserError(f"{str(path)!r} {came}", allowed, "name what `truedrift train` or `truedrift convert` printed")
    if not (path / CONFIG).exists():
        came = f"{str(path)!r} has no {CONFIG}"
        raise UserError(came, allowed, "name what `truedrift train` or `truedrift convert` printed")
    return any((path / name).exists() for name in (CHECKPOINTS, METRICS, LOCK))


def _read(path: Path) -> dict[str, Any]:
    file = path / CONFIG
    if not file.exists():
        came = f"{str(path)!r} is no run" if path.exists() else f"{str(path)!r} does not exist"
        raise UserError(came, f"allowed is a directory with {CONFIG}", "name what `truedrift train` printed")
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        schema, made_by = tree["schema"], tree.get("version", "of that run")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(file, error) from None
    if schema != SCHEMA:
        came = f"{str(file)!r} has schema {schema!r}"
        raise UserError(came, f"this version ({__version__}) reads {SCHEMA}", f"use truedrift {made_by}")
    for name in ("config", "parts", "data"):
        if not isinstance(tree.get(name), dict):
            raise _unreadable(file, KeyError(name))
    return tree


def _unreadable(file: Path, error: Exception) -> UserError:
    came = f"{str(file)!r} cannot be read as a run's ({type(error).__name__})"
    return UserError(came, "allowed is what `truedrift train` wrote", "restore it, or name another run")


def _as_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


def _require_same(path: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    found = differences(_compared(path, there), _as_json(_compared(path, wanted)))
    if found:
        listed = "; ".join(each.removeprefix("config.") for each in found[:6])
        raise UserError(
            f"{str(path)!r} holds another run, which differs in {listed}; "
            "allowed is the same configuration and data; name another directory with --out"
        )


def _compared(path: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    try:
        config = identity(tree["config"])
    except (KeyError, AttributeError, TypeError) as error:
        raise _unreadable(path / CONFIG, error) from None
    return {"config": config, "parts": tree["parts"], "data": tree["data"]}
