"""Files that survive a crash: written, fsynced, renamed to their name, and the directory fsynced.

`fsync` of a file makes its content last, `fsync` of its directory makes its name last. A rename replaces the old name
in one step, so that whoever reads sees the old file or the new one and never half of it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def write_synced(path: Path, content: bytes) -> None:
    """The content under that name, on the disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Every byte: the system may take a part, most of all when the disk is nearly full."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Make the names in the directory last. Windows cannot open one; it has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """The file with its old content or its new one, never anything between: temporary name, fsync, rename, fsync."""
    temporary = path.with_name(f".{path.name}.writing")
    write_synced(temporary, content)
    os.replace(temporary, path)
    sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """The directory and those above it, each one's name made to last."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def discard(path: Path, first: str) -> None:
    """Remove a directory, its file `first` before everything else; or whatever else has that name."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        (path / first).unlink(missing_ok=True)
        sync_directory(path)
        shutil.rmtree(path)
