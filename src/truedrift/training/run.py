"""A run directory: config.json says what it is, history.jsonl who worked on it and when.

    RUN/config.json  metrics.jsonl  history.jsonl  lock  checkpoints/step-N/  samples/  incidents/  tensorboard/

The same command finds its run and goes on; another configuration in that directory is refused with the fields that
differ. Only the first of several processes writes.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from truedrift.data.samples import Samples
from truedrift.files import write_atomically
from truedrift.options import differences, from_tree
from truedrift.records.origin import commit, version
from truedrift.training.config import RunConfig, identity, run_id
from truedrift.training.lock import LOCK
from truedrift.validation import Mistake, mistake

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
            self._write(self._tree(samples) | {"version": version(), "commit": commit()})
            return
        there = _read(self.path)
        changed = differences(there["config"], _as_json(self.config.tree()))
        if changed:
            self._write(there | {"config": self.config.tree()})
            self.note("changed", options=changed)

    def _write(self, tree: Mapping[str, Any]) -> None:
        content = json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
        with told_if_not_written(self.path):
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
            raise mistake(
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
            "version": version(),
            **facts,
        }
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with told_if_not_written(self.path), (self.path / HISTORY).open("ab+") as file:
            file.write(_end_of_torn_line(file) + line.encode())


def _end_of_torn_line(file: BinaryIO) -> bytes:
    """What a kill in mid-append left is ended, so that it spoils no other line."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - 1))
    return b"" if file.read() in (b"", b"\n") else b"\n"


@contextmanager
def told_if_not_written(path: Path) -> Iterator[None]:
    """A disk that is full, gone or read-only is told in one sentence."""
    try:
        yield
    except OSError as error:
        raise mistake(
            f"the run directory {str(path)!r} cannot be written ({error.strerror or error})",
            "allowed is a place to write to, with room",
            "make room or make it writable, and run the same command again",
        ) from None


def made(path: Path) -> Path:
    """The directory, made if it is missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise mistake(
            f"the run directory {str(path)!r} cannot be made ({reason})",
            "allowed is a place to write to",
            "name another",
        ) from None
    return path


def open_run(path: Path) -> RunDirectory:
    """The run in that directory, as its config.json tells."""
    tree = _read(path)
    try:
        config = from_tree(RunConfig, tree["config"])
        data = {"classes": list(tree["data"]["classes"]), "sample_shape": list(tree["data"]["sample_shape"])}
    except Mistake as error:
        raise Mistake(f"{str(path / CONFIG)!r}: {error}") from None
    except (KeyError, TypeError) as error:
        raise _unreadable(path / CONFIG, error) from None
    return RunDirectory(path, config, tree["parts"], tree["data"] | data)


def is_run(path: Path) -> bool:
    """Whether the directory is a run; a folder of `save_pretrained` has a config.json too, but none of these."""
    allowed = "allowed is a run, or a folder of weights"
    if not path.is_dir():
        came = "is a file" if path.exists() else "does not exist"
        raise mistake(f"{str(path)!r} {came}", allowed, "name what `truedrift train` or `truedrift convert` printed")
    if not (path / CONFIG).exists():
        came = f"{str(path)!r} has no {CONFIG}"
        raise mistake(came, allowed, "name what `truedrift train` or `truedrift convert` printed")
    return any((path / name).exists() for name in (CHECKPOINTS, METRICS, LOCK))


def _read(path: Path) -> dict[str, Any]:
    file = path / CONFIG
    if not file.exists():
        came = f"{str(path)!r} is no run" if path.exists() else f"{str(path)!r} does not exist"
        raise mistake(came, f"allowed is a directory with {CONFIG}", "name what `truedrift train` printed")
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        schema, made_by = tree["schema"], tree.get("version", "of that run")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(file, error) from None
    if schema != SCHEMA:
        came = f"{str(file)!r} has schema {schema!r}"
        raise mistake(came, f"this version ({version()}) reads {SCHEMA}", f"use truedrift {made_by}")
    for name in ("config", "parts", "data"):
        if not isinstance(tree.get(name), dict):
            raise _unreadable(file, KeyError(name))
    return tree


def _unreadable(file: Path, error: Exception) -> Mistake:
    came = f"{str(file)!r} cannot be read as a run's ({type(error).__name__})"
    return mistake(came, "allowed is what `truedrift train` wrote", "restore it, or name another run")


def _as_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


def _require_same(path: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    found = differences(_compared(path, there), _as_json(_compared(path, wanted)))
    if found:
        listed = "; ".join(each.removeprefix("config.") for each in found[:6])
        raise Mistake(
            f"{str(path)!r} holds another run, which differs in {listed}; "
            "allowed is the same configuration and data; name another directory with --out"
        )


def _compared(path: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    try:
        config = identity(tree["config"])
    except (KeyError, AttributeError, TypeError) as error:
        raise _unreadable(path / CONFIG, error) from None
    return {"config": config, "parts": tree["parts"], "data": tree["data"]}
