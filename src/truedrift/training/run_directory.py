"""Run directories: one per run, used by one process at a time.

    RUN/config.json  metrics.jsonl  history.jsonl  lock  checkpoints/step-N/  samples/  incidents/  tensorboard/

`config.json` holds the configuration, the names of the user's parts, a description of the data, and its own sha256.
`history.jsonl` has one line per start and end. The same command finds its run directory and resumes the run. A
directory with another configuration is refused, and the message lists the options that differ. A damaged config.json is
written again if the checkpoints are of the same run. Of several processes only rank 0 writes.

`lock_run` locks `RUN/lock` through the operating system, which releases the lock when the process ends for any reason.
"""

import errno
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from truedrift._version import __version__
from truedrift.data.samples import Samples
from truedrift.errors import UserError, require_sample_shape
from truedrift.options import differences, from_dict
from truedrift.records.provenance import commit
from truedrift.storage import (
    append_json_line,
    matches_its_hash,
    open_regular,
    read_regular,
    to_hashed_json,
    write_all,
    write_atomically,
)
from truedrift.training import checkpoint
from truedrift.training.config import RunConfig, identity, run_id

SCHEMA = 1
CONFIG = "config.json"
METRICS = "metrics.jsonl"
HISTORY = "history.jsonl"
LOCK = "lock"
SAMPLES, REAL = "samples", "real.png"
"""Pictures of samples, and beside them one of training images."""
INCIDENTS = "incidents"
CHECKPOINTS = "checkpoints"


# ---- Lock ----


class RunInUse(UserError):
    """Another process uses the run directory."""


@contextmanager
def lock_run(directory: Path) -> Iterator[None]:
    """Hold the lock of the directory, which is made if it is missing.

    The file names the owner's process and host for the error message only. It is never removed.

    Args:
        directory: The run directory.

    Returns:
        A context manager that releases the lock at its end.

    Raises:
        RunInUse: If another process, or this one, holds the lock.
        UserError: If the directory or the file system does not allow a lock.
    """
    path = directory / LOCK
    # `on_acquired` also rules out filelock's fallback to a lock that a killed process would leave behind.
    lock = FileLock(path, timeout=0, thread_local=False, on_acquired=_write_owner)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.exists() or path.is_symlink():
            _require_lock_file(path)
        lock.acquire()
    except Timeout:
        raise RunInUse(
            f"the run directory {str(directory)!r} is in use by {_read_owner(path)}",
            "only one process at a time may use it",
            "wait until that process ends, stop it, or choose another directory",
        ) from None
    except OSError as error:
        reason = "it is a file" if directory.is_file() else error.strerror or error
        raise UserError(
            f"the run directory {str(directory)!r} cannot be created or locked ({reason})",
            "must be a directory in a writable place, on a file system with file locks",
            "choose another directory with --out",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _require_lock_file(path: Path) -> None:
    """Require a regular file in the place of the lock."""
    try:
        os.close(open_regular(path, os.O_RDWR))
    except OSError as error:
        problem = f"the lock {str(path)!r} cannot be used ({error.strerror})"
        raise UserError(problem, "must be a regular file that can be written", "remove it") from None


def is_locked(directory: Path) -> bool:
    """Return whether another process uses the run directory. A directory that cannot be locked is not in use."""
    if not (directory / LOCK).exists():
        return False
    try:
        with lock_run(directory):
            return False
    except UserError as error:
        return isinstance(error, RunInUse)


def _write_owner(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    write_all(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())


def _read_owner(path: Path) -> str:
    try:
        pid, _, host = read_regular(path).decode(errors="replace").strip().partition(" ")
    except OSError:
        return "another process"
    return f"process {pid} on {host}" if pid and host else "another process"


# ---- Run directory ----


@dataclass(frozen=True)
class RunDirectory:
    """The location and the configuration of a run."""

    path: Path
    config: RunConfig
    parts: Mapping[str, str]
    """Names of the parts that are Python objects of the user."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Hash, sample shape and class names of the training data, if the run was opened from disk."""

    @property
    def id(self) -> str:
        """Hash of everything that determines a step. Checkpoints carry it."""
        return run_id({"config": self.identity(self.config.tree()), "parts": dict(self.parts)})

    def identity(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a configuration that determines the steps."""
        return identity(tree)

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return self.path / CHECKPOINTS

    def require_same_run(self, samples: Samples) -> None:
        """Require that the directory is missing, empty, or holds a run of this configuration and data."""
        try:
            if (self.path / CONFIG).exists():
                self._require_same(read_config(self.path), self._describe(samples))
            elif self.path.is_dir() and not self._has_own_checkpoints_only():  # else config.json was lost
                self._require_empty()
        except DamagedConfig:
            if not self._has_own_checkpoints_only():
                raise

    def write_config(self, samples: Samples, notify: Callable[[str], None] = lambda message: None) -> None:
        """Write config.json. If it exists, it must be of the same run; options that may change are updated.

        A damaged file is written again, with a message, if every checkpoint is of this run.
        """
        self.require_same_run(samples)
        described = self._describe(samples) | {"version": __version__, "commit": commit()}
        try:
            if not (self.path / CONFIG).exists():
                self._write(described)
                return
            written = read_config(self.path)
        except DamagedConfig as error:
            self._write(described)
            self.append_history("repaired", problem=error.summary)
            notify(f"{error.summary}; the checkpoints are of this run, so it was written again")
            return
        changed = differences(written["config"], _as_json(self.config.tree()))
        if changed:
            self._write(written | {"config": self.config.tree()})
            self.append_history("changed", options=changed)

    def is_described_by(self, data: Mapping[str, Any]) -> bool:
        """Return whether config.json has exactly this configuration, these parts and data (`Samples.describe`)."""
        try:
            written = read_config(self.path)
        except UserError:
            return False
        content = _as_json(self._content(data))
        return {name: written[name] for name in content} == content

    def _has_own_checkpoints_only(self) -> bool:
        """Return whether there are checkpoints, and every readable one is of this run."""
        runs = checkpoint.runs(self.checkpoints)
        return runs == {self.id}

    def append_history(self, event: str, **facts: Any) -> None:
        """Append one line to history.jsonl."""
        entry = {
            "event": event,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": socket.gethostname(),
            "process": os.getpid(),
            "version": __version__,
            **facts,
        }
        with write_errors_as_user_errors(self.path):
            append_json_line(self.path / HISTORY, entry)

    def _write(self, tree: Mapping[str, Any]) -> None:
        content = to_hashed_json({name: value for name, value in tree.items() if name != "sha256"})
        with write_errors_as_user_errors(self.path):
            write_atomically(self.path / CONFIG, content)

    def _describe(self, samples: Samples) -> dict[str, Any]:
        """Return the content of config.json."""
        return {"schema": SCHEMA, **self._content(samples.describe())}

    def _content(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"config": self.config.tree(), "parts": dict(self.parts), "data": dict(data)}

    def _require_same(self, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        differing = differences(self._identities(written), _as_json(self._identities(wanted)))
        if differing:
            listed = "; ".join(each.removeprefix("config.") for each in differing[:6])
            raise UserError(
                f"{str(self.path)!r} holds another run, which differs in {listed}",
                "must have the same configuration and data",
                "choose another directory with --out",
            )

    def _identities(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return what must agree between two descriptions of one run."""
        try:
            config = self.identity(tree["config"])
        except (KeyError, AttributeError, TypeError) as error:
            raise _unreadable_config(self.path / CONFIG, type(error).__name__) from None
        return {"config": config, "parts": tree["parts"], "data": tree["data"]}

    def _require_empty(self) -> None:
        """Refuse a directory that holds something else. Hidden files and a lock do not count."""
        others = [entry.name for entry in self.path.iterdir() if entry.name != LOCK and not entry.name.startswith(".")]
        if others:
            raise UserError(
                f"the directory {str(self.path)!r} holds {sorted(others)[0]!r} and no {CONFIG}",
                "must be a run or an empty directory",
                "choose another directory with --out",
            )


@contextmanager
def write_errors_as_user_errors(path: Path) -> Iterator[None]:
    """Turn an OSError, such as that of a full or read-only disk, into a UserError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EINVAL and error.filename:  # `open_regular` refused what is in its place
            problem = f"{str(error.filename)!r} cannot be used ({error.strerror})"
            raise UserError(problem, "must be a regular file", "remove it and run the same command again") from None
        raise UserError(
            f"the run directory {str(path)!r} cannot be written ({error.strerror or error})",
            "must be writable and have free space",
            "free some space or make it writable, and run the same command again",
        ) from None


def open_run(path: Path) -> RunDirectory:
    """Read the run in the directory from its config.json.

    Args:
        path: The run directory.

    Returns:
        The run with its configuration, the names of its parts, and `data`: sha256, sample shape and class names.

    Raises:
        UserError: If the directory is not a run, or its config.json is damaged or of another schema.
    """
    tree = read_config(path)
    if "network" in (tree.get("config") or {}):
        problem = f"{str(path)!r} is a run of train-encoder"
        raise UserError(problem, "must be a run of train", "pass it to train with --encoder")
    try:
        config = from_dict(RunConfig, tree["config"])
        data = {"classes": list(tree["data"]["classes"]), "sample_shape": list(tree["data"]["sample_shape"])}
        require_sample_shape(data["sample_shape"])
    except UserError as error:
        raise error.with_prefix(repr(str(path / CONFIG))) from None
    except (KeyError, TypeError) as error:
        raise _unreadable_config(path / CONFIG, type(error).__name__) from None
    return RunDirectory(path, config, tree["parts"], tree["data"] | data)


def is_run(path: Path) -> bool:
    """Return True for a run and False for a folder of `save_pretrained`, which has a config.json of its own.

    Raises:
        UserError: If the path is neither.
    """
    if (path / CONFIG).exists():
        return any((path / name).exists() for name in (CHECKPOINTS, METRICS, LOCK))
    missing = "is a file" if path.exists() else "does not exist"
    raise UserError(
        f"{str(path)!r} {f'has no {CONFIG}' if path.is_dir() else missing}",
        "must be a run directory or a folder of weights",
        "pass the path that `truedrift train` or `truedrift convert` printed",
    )


def read_config(path: Path) -> dict[str, Any]:
    """Read config.json and check its schema."""
    file = path / CONFIG
    if not file.exists():
        problem = "is not a run" if path.exists() else "does not exist"
        raise UserError(
            f"{str(path)!r} {problem}",
            f"must be a directory with {CONFIG}",
            "pass the path that `truedrift train` printed",
        )
    # Read the file.
    try:
        content = read_regular(file)
        tree = json.loads(content.decode())
        schema, written_by = tree["schema"], tree.get("version", "of that run")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable_config(file, type(error).__name__) from None
    # Check its hash, which older files do not have, its schema and its sections.
    if "sha256" in tree and not matches_its_hash(content):
        raise _unreadable_config(file, "its content is not what was written")
    if schema != SCHEMA:
        raise UserError(
            f"{str(file)!r} has schema {schema!r}",
            f"this version ({__version__}) reads schema {SCHEMA}",
            f"use truedrift {written_by}",
        )
    for name in ("config", "parts", "data"):
        if not isinstance(tree.get(name), dict):
            raise _unreadable_config(file, f"it has no {name}")
    return tree


class DamagedConfig(UserError):
    """A config.json that is not the configuration of a run."""


def _unreadable_config(file: Path, reason: str) -> DamagedConfig:
    return DamagedConfig(
        f"{str(file)!r} is not the configuration of a run ({reason})",
        "must be the file that `truedrift train` wrote",
        "restore it, or choose another run",
    )


def _as_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))
