"""A record as files and text: what every command that makes or reads records does with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truedrift.report.catalog import item_of


def rendered(record: Any, directory: Path) -> str:
    """The files of the record are written, and its text is returned with their paths."""
    item = item_of(record)
    paths = item.save(record, directory)
    return "\n".join((item.summary(record), "", *(f"written: {path}" for path in paths)))
