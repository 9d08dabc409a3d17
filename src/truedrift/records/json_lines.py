"""The objects of a file with one JSON object a line, whatever a kill in mid-append has left of it.

For looking at files that somebody else writes: a line that is torn or no object is passed over. What must be whole is
read by `store.read` and `metrics_log.read`, which tell of such a line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def objects(path: Path, *, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """The objects of the file, or of its last bytes alone; none where there is no file.

    A last line without an end is being written, or was torn: it does not count.
    """
    lines = _lines(path, last_bytes)
    return [entry for entry in map(object_of, lines) if entry is not None]


def _lines(path: Path, last_bytes: int | None) -> list[bytes]:
    try:
        with path.open("rb") as file:
            first = 0 if last_bytes is None else max(0, file.seek(0, os.SEEK_END) - last_bytes)
            file.seek(first)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    return lines[1 if first else 0 : -1]  # not the one whose beginning was left out


def object_of(line: bytes) -> dict[str, Any] | None:
    """The object that the line is, if it is one."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
