"""Where a record came from: version, commit, machine, seed, wall time, command."""

from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch

Record = TypeVar("Record")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a record came from. `commit` ends in "-dirty" if files were changed since, and is None outside a clone."""

    version: str
    commit: str | None
    python: str
    torch: str
    platform: str
    seed: int
    wall_seconds: float
    time: str
    command: str | None = None
    """That computes it again, where one is known."""


def provenance(*, seed: int, wall_seconds: float, command: str | None = None) -> Provenance:
    """The provenance of a result that is ready now."""
    return Provenance(
        version=version(),
        commit=commit(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        platform=platform.platform(),
        seed=seed,
        wall_seconds=wall_seconds,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
    )


def with_command(record: Record, command: str) -> Record:
    """The record with the command that made it."""
    told: Any = record
    changed: Record = replace(told, provenance=replace(told.provenance, command=command))
    return changed


def version() -> str:
    """Of this package."""
    return sys.modules["truedrift"].__version__  # loaded before any of its modules; importing it would point up


def commit() -> str | None:
    """The commit of the clone that this file is part of: None if it is installed elsewhere or git is not there."""
    here = Path(__file__)
    git = ["git", "--no-optional-locks", "-C", str(here.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], check=True, capture_output=True, timeout=10)
        describe = [*git, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
        answer = subprocess.run(describe, check=True, capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
