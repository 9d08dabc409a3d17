"""The provenance of a record: version, commit, machine, seed, wall time and command."""

import platform
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch

from truedrift._version import __version__

Record = TypeVar("Record")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How and where a record was computed."""

    version: str
    commit: str | None
    """Ends in "-dirty" if the clone had changed files; None outside a clone."""
    python: str
    torch: str
    platform: str
    seed: int
    wall_seconds: float
    time: str
    command: str | None = None
    """The command that computes the record again, if there is one."""


def provenance(*, seed: int, wall_seconds: float, command: str | None = None) -> Provenance:
    """Return the provenance of a result that was computed just now.

    Args:
        seed: The seed of the computation.
        wall_seconds: How long it took, in seconds.
        command: The command that computes it again; None: there is none.

    Returns:
        These values with the versions of truedrift, Python and torch, the commit of the clone, the platform, and the
        current time (UTC).
    """
    return Provenance(
        version=__version__,
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
    """Return a copy of the record with a command in its provenance.

    Args:
        record: A dataclass with a field `provenance`.
        command: The command that computes the record again.

    Returns:
        A new record of the same kind; the given one is unchanged.
    """
    original: Any = record
    changed: Record = replace(original, provenance=replace(original.provenance, command=command))
    return changed


def commit() -> str | None:
    """Return the commit of the clone that holds this file; None if it is installed elsewhere or git is missing."""
    here = Path(__file__)
    git = ["git", "--no-optional-locks", "-C", str(here.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], check=True, capture_output=True, timeout=10)
        # Not `describe --dirty`, which locks the index in spite of the option: a kill would leave the lock behind.
        head, changed = (
            subprocess.run([*git, *words], check=True, capture_output=True, timeout=10, text=True).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head
