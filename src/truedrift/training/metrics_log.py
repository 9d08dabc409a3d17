"""RUN/metrics.jsonl: one JSON object a line, only appended to, and cut back on resume to where the checkpoint was.

A checkpoint stores `offset()`, the bytes that were on the disk when it was made. What a killed process wrote after it
will be computed again, so `resume` removes it, and the file becomes the same as that of a run that was never killed.

JSON has no NaN and no infinity: a number that is not finite is written as null.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from truedrift.files import sync_directory, write_all
from truedrift.validation import Mistake, mistake


class MetricsLog:
    """The file, opened for appending and made if it is missing; a last line that a crash left torn is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            os.ftruncate(self._descriptor, _end_of_lines(path))
            sync_directory(path.parent)
        except OSError as error:
            raise _not_written(path, error) from None

    @classmethod
    def resume(cls, path: Path, offset: int) -> MetricsLog:
        """The file cut back to its first `offset` bytes, which must be whole lines."""
        _require_whole_lines(path, offset)
        try:
            if path.exists():
                os.truncate(path, offset)
        except OSError as error:
            raise _not_written(path, error) from None
        return cls(path)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one line, given to the system at once: it outlives the process, and after `offset()` the machine."""
        line = json.dumps(_finite(entry), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            write_all(self._descriptor, line.encode())
        except OSError as error:
            raise _not_written(self.path, error) from None

    def offset(self) -> int:
        """The length of the file, all of it on the disk."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _not_written(self.path, error) from None
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Every entry, in order; a last line without an end was torn by a crash and is left out."""
    try:
        content = path.read_bytes()
    except OSError as error:
        came = f"{str(path)!r} cannot be read ({error.strerror})"
        raise mistake(came, "allowed is the metrics.jsonl of a run", "check its name") from None
    return [_entry(path, number, line) for number, line in enumerate(content.split(b"\n")[:-1], start=1)]


def _entry(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        came = f"line {number} of {str(path)!r} is not a JSON object"
        raise mistake(came, "allowed is one a line", "remove that line")
    return entry


def _end_of_lines(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def _require_whole_lines(path: Path, offset: int) -> None:
    """The file has `offset` bytes, and the last of them ends a line."""
    length = path.stat().st_size if path.exists() else 0
    do = "restore the file, or start the run anew in another directory"
    if not 0 <= offset <= length:
        came = f"{str(path)!r} has {length} bytes and the checkpoint was made at {offset}"
        raise mistake(came, "allowed is a file with everything that the checkpoint has seen", do)
    if offset and _byte_before(path, offset) != b"\n":
        came = f"{str(path)!r} has no end of a line at {offset}, where the checkpoint was made"
        raise mistake(came, "allowed is the file of that run, unchanged", do)


def _byte_before(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset - 1)
        return file.read(1)


def _finite(value: Any) -> Any:
    """The value with null for every number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _not_written(path: Path, error: OSError) -> Mistake:
    return mistake(
        f"the metrics cannot be written to {str(path)!r} ({error.strerror})",
        "allowed is a file that can be written, with space for it",
        "make room or make it writable, and run the same command again",
    )
