"""Whether a checkpoint is as it was saved: each file against its length and sha256, the manifest against its own.

Hidden files (a file browser's, a network file system's) are ignored; any other file that the manifest does not list is
damage, since nobody can say what belongs to the run then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from truedrift.training.manifest import MANIFEST, Manifest, entry_of, parse
from truedrift.validation import Mistake

STEP_DIRECTORY = re.compile(r"step-(\d{8,})")


class Damaged(Mistake):
    """A checkpoint that is not as it was saved; `what` says in which way."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{str(path)!r} is no valid checkpoint ({what}); allowed is one with its manifest and every file as saved; "
            "take another one of the run"
        )
        self.what = what


def directory_name(step: int) -> str:
    """The name of the checkpoint of that step."""
    return f"step-{step:08d}"


def is_valid(path: Path, run: str | None) -> bool:
    """Whether everything in the directory is as it was saved, by that run or by any (None)."""
    try:
        for _ in verified_files(path, verified_manifest(path, run)):
            pass
    except Damaged:
        return False
    return True


def verified_manifest(path: Path, run: str | None) -> Manifest:
    """The manifest in the directory, of that run and of the step that the directory is named after."""
    content = _read(path, MANIFEST)
    try:
        manifest = parse(content)
    except ValueError as error:
        raise Damaged(path, f"{MANIFEST} cannot be used: {error}") from None
    if run is not None and manifest.run != run:
        raise Damaged(path, f"{MANIFEST} is of run {manifest.run!r} and not of {run!r}")
    if STEP_DIRECTORY.fullmatch(path.name) and path.name != directory_name(manifest.step):
        raise Damaged(path, f"{MANIFEST} is of step {manifest.step}")
    return manifest


def verified_files(path: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file, one in memory at a time."""
    for name in sorted(_visible(path) - manifest.files.keys() - {MANIFEST}):
        raise Damaged(path, f"{name} is there and was not saved with it")
    for name, saved in manifest.files.items():
        content = _read(path, name)
        if len(content) != saved.bytes:
            raise Damaged(path, f"{name} has {len(content)} bytes instead of {saved.bytes}")
        if entry_of(content) != saved:
            raise Damaged(path, f"the content of {name} is not what was saved")
        yield name, content


def _visible(path: Path) -> set[str]:
    try:
        return {name for name in os.listdir(path) if not name.startswith(".")}
    except OSError as error:
        raise Damaged(path, f"it cannot be listed, {error.strerror}") from None


def _read(path: Path, name: str) -> bytes:
    try:
        return (path / name).read_bytes()
    except FileNotFoundError:
        raise Damaged(path, f"{name} is missing") from None
    except OSError as error:
        raise Damaged(path, f"{name} cannot be read, {error.strerror}") from None
