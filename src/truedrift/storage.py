"""Files: the cache directory, writes that survive a crash, JSON lines, and cached tensors.

The cache is $TRUEDRIFT_CACHE, else $XDG_CACHE_HOME/truedrift, else ~/.cache/truedrift.

A file is written under a temporary name, synchronized to disk (`fsync`), and renamed. A rename replaces the old file in
one step, so a reader sees the old content or the new content, never a part of it. `fsync` of the directory makes the
new name permanent.

A JSON-lines file holds one JSON object per line. A process that is killed while it appends leaves a torn last line:
readers skip it, and the next append starts on a new line.

Cached tensors are a safetensors file and a file with the sha256 of its content. A file that does not match its hash
counts as missing, and its content is computed again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from truedrift.axes import Tensor
from truedrift.errors import UserError


def cache_directory(name: str = "") -> Path:
    """Return the cache directory, or one of its subdirectories.

    Args:
        name: Name of the subdirectory, such as "mnist" or "features"; empty: the cache directory itself.

    Returns:
        The path below $TRUEDRIFT_CACHE, else $XDG_CACHE_HOME/truedrift, else ~/.cache/truedrift. It may not exist.
    """
    own = os.environ.get("TRUEDRIFT_CACHE")
    if own:
        return Path(own).expanduser() / name
    # The XDG specification says to ignore a relative path.
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "truedrift" / name


# ---- Writing files ----


def write_fsync(path: Path, content: bytes) -> None:
    """Write the file and wait until its content is on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte. A single `os.write` may write only a part, for example on a nearly full disk."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Make the names in the directory permanent. Windows has no such call and does not need it."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write the file so that it has its old content or its new content, never a part of it.

    Args:
        path: The file. Its directory must exist.
        content: The new content.
        sync: Wait until the file is on disk. Pass False for many small files that can be made again.
    """
    temporary = path.with_name(f".{path.name}.writing")
    try:
        if sync:
            write_fsync(temporary, content)
        else:
            temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make the directory and its parents, and make their names permanent."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def remove_tree(path: Path, first: str) -> None:
    """Remove a directory, its file `first` before the others. Anything else with that name is removed too."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        (path / first).unlink(missing_ok=True)
        sync_directory(path)
        shutil.rmtree(path)


# ---- JSON lines ----


def read_json_lines(path: Path, *, last_bytes: int | None = None, strict: bool = False) -> list[dict[str, Any]]:
    """Read the objects of a JSON-lines file. A last line without a newline is torn and does not count.

    Args:
        path: The file.
        last_bytes: Read only the whole lines among the last bytes of the file.
        strict: Report an unreadable file or line. By default the line is skipped, and a missing file has no lines.

    Raises:
        UserError: If `strict`, and the file or one of its lines cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = 0 if last_bytes is None else max(0, file.seek(0, os.SEEK_END) - last_bytes)
            file.seek(start)
            lines = file.read().split(b"\n")[1 if start else 0 : -1]  # the first line may lack its beginning
    except OSError as error:
        if not strict:
            return []
        raise UserError(
            f"{str(path)!r} cannot be read ({error.strerror})", "must be a JSON-lines file", "check the path"
        ) from None
    entries = [parse_json_line(line) for line in lines]
    if strict and None in entries:
        raise UserError(
            f"line {entries.index(None) + 1} of {str(path)!r} is not a JSON object",
            "must have one object per line",
            "remove that line",
        )
    return [entry for entry in entries if entry is not None]


def parse_json_line(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object on the line, or None if there is none."""
    try:
        return decode_json_line(line)
    except (ValueError, RecursionError):
        return None


def decode_json_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object on the line; raise ValueError or RecursionError if there is none."""
    entry = json.loads(line.decode(), parse_constant=_reject_constant)
    if not isinstance(entry, dict):
        raise ValueError(f"{type(entry).__name__} is not a JSON object")
    return entry


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def append_json_line(path: Path, entry: Mapping[str, Any]) -> None:
    """Append the object as the last line, on a new line if the file ends in a torn one."""
    line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        torn = file.read() not in (b"", b"\n")
        file.write(b"\n" + line if torn else line)


# ---- Cached tensors ----


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors as safetensors, then the hash of that file."""
    from safetensors.torch import save  # noqa: PLC0415  an extra

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    write_atomically(_hash_path(path), f"{hashlib.sha256(content).hexdigest()}\n".encode())


def cache_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors if possible. A cache that cannot be written only costs time."""
    with suppress(OSError):
        write_tensors(path, tensors)


def read_tensors(path: Path) -> dict[str, Tensor] | None:
    """Read the tensors, or return None if the file is missing or does not match its hash."""
    from safetensors.torch import load  # noqa: PLC0415  an extra

    try:
        content, expected = path.read_bytes(), _hash_path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return load(content) if hashlib.sha256(content).hexdigest() == expected else None


def remove_tensors(path: Path) -> None:
    """Remove the file and its hash, if they exist."""
    _hash_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of names, shapes and values, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _hash_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
