"""npm and pip as the user has set them up, run as a child process that is watched and, if need be, ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from truedrift.data.download import Undelivered, in_words
from truedrift.progress import Progress

LOOK_SECONDS = 0.5
LONGEST_SECONDS = 3600.0
LONGEST_REASON = 200
"""Characters of what a packager says that are told."""


def run_packager(command: Sequence[str], scratch: Path, what: str, size: int, progress: Progress) -> None:
    """Run the command with all its files below `scratch`; what it has written there is the progress, of `size`."""
    environment = os.environ | {"TMPDIR": str(scratch), "NO_COLOR": "1"}
    log = scratch / "packager.log"
    with log.open("wb") as said:
        try:
            child = subprocess.Popen(
                command, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        except OSError as error:
            raise Undelivered(in_words(error)) from None
        try:
            _watched(child, scratch, what, size, progress)
        finally:
            child.kill()
            child.wait()
    if child.returncode:
        raise Undelivered(_reason(log.read_text(encoding="utf-8", errors="replace")) or f"status {child.returncode}")


def _watched(child: subprocess.Popen[bytes], scratch: Path, what: str, size: int, progress: Progress) -> None:
    waited = 0.0
    while waited < LONGEST_SECONDS:
        try:
            child.wait(LOOK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            waited += LOOK_SECONDS
            progress(what, min(_bytes_below(scratch), size), size)
    raise Undelivered(f"it took more than {LONGEST_SECONDS / 60:.0f} minutes")


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone in the meantime
            continue
    return total


def _reason(said: str) -> str:
    """What a packager says of its failure: what follows "reason:", else the last line with the word error."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    reasons = [line.partition("reason:")[2].strip() for line in lines if "reason:" in line]
    errors = [line for line in lines if "error" in line.lower()]
    return (reasons or errors or lines or [""])[-1][:LONGEST_REASON]
