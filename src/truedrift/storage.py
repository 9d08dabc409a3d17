"""Where what is fetched lives: $TRUEDRIFT_CACHE, else $XDG_CACHE_HOME/truedrift, else ~/.cache/truedrift.

Files that survive a crash: written, fsynced, renamed to their name, and the directory fsynced.

`fsync` of a file makes its content last, `fsync` of its directory makes its name last. A rename replaces the old name
in one step, so that whoever reads sees the old file or the new one and never half of it.

The objects of a file with one JSON object a line, whatever a kill in mid-append has left of it.

For looking at files that somebody else writes: a line that is torn or no object is passed over. What must be whole is
read by `store.read` and `metrics_log.read`, which tell of such a line.

Named tensors in the cache: a safetensors file with the sha256 of its content beside it, written in one step.

What is not whole, or not of this machine's making, reads as not there: it is computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from truedrift.axes import Tensor


def cache_directory(name: str = "") -> Path:
    """The directory of the cache, or that of one data set in it. It need not exist."""
    own = os.environ.get("TRUEDRIFT_CACHE")
    if own:
        return Path(own).expanduser() / name
    # A relative XDG_CACHE_HOME is to be ignored, as its specification says.
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "truedrift" / name


def write_fsync(path: Path, content: bytes) -> None:
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
    write_fsync(temporary, content)
    os.replace(temporary, path)
    sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """The directory and those above it, each one's name made to last."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def remove_tree(path: Path, first: str) -> None:
    """Remove a directory, its file `first` before everything else; or whatever else has that name."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        (path / first).unlink(missing_ok=True)
        sync_directory(path)
        shutil.rmtree(path)


def read_json_lines(path: Path, *, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """The objects of the file, or of its last bytes alone; none where there is no file.

    A last line without an end is being written, or was torn: it does not count.
    """
    lines = _lines(path, last_bytes)
    return [entry for entry in map(parse_json_line, lines) if entry is not None]


def _lines(path: Path, last_bytes: int | None) -> list[bytes]:
    try:
        with path.open("rb") as file:
            first = 0 if last_bytes is None else max(0, file.seek(0, os.SEEK_END) - last_bytes)
            file.seek(first)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    return lines[1 if first else 0 : -1]  # not the one whose beginning was left out


def parse_json_line(line: bytes) -> dict[str, Any] | None:
    """The object that the line is, if it is one."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The file first, then its hash."""
    from safetensors.torch import save  # noqa: PLC0415  an extra

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    write_atomically(_hash_path(path), f"{hashlib.sha256(content).hexdigest()}\n".encode())


def cache_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The same, where a cache that cannot be written costs time and nothing else."""
    with suppress(OSError):
        write_tensors(path, tensors)


def sha256_of(tensors: Mapping[str, Tensor]) -> str:
    """Over names, shapes and values, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor] | None:
    """The tensors, if they are there as they were written."""
    from safetensors.torch import load  # noqa: PLC0415  an extra

    try:
        content, expected = path.read_bytes(), _hash_path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return load(content) if hashlib.sha256(content).hexdigest() == expected else None


def remove_tensors(path: Path) -> None:
    """If they are there."""
    _hash_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _hash_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
