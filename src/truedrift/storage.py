"""Files: the cache directory, writes that survive a crash, JSON lines, and cached tensors.

The cache is $TRUEDRIFT_CACHE, else $XDG_CACHE_HOME/truedrift, else ~/.cache/truedrift.

A file is written under a temporary name, synchronized to disk (`fsync`), and renamed. A rename replaces the old file in
one step, so a reader sees the old content or the new content, never a part of it. `fsync` of the directory makes the
new name permanent.

Only regular files are opened. A FIFO or a device in place of a file would block or be written to, and so would a
symbolic link that leads elsewhere: links are followed for reading and refused for writing.

A JSON-lines file holds one JSON object per line. A process that is killed while it appends leaves a torn last line:
readers skip it, and the next append starts on a new line.

Cached tensors are a safetensors file and a file with the sha256 of its content. A file that does not match its hash
counts as missing, and its content is computed again.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

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


# ---- Regular files ----


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor; new files get the permissions of the umask.

    Args:
        path: The file.
        flags: Those of `os.open`. A symbolic link is followed only if the file is opened for reading.

    Raises:
        OSError: If the path cannot be opened, or is a link, a FIFO, a device or a directory.
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    try:
        # O_NONBLOCK: opening a FIFO does not wait for its other end.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if writes else 0), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_regular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is a link, a FIFO, a device or a directory, and not a regular file", str(path))


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError for anything else."""
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file; raise OSError for anything else."""
    with open_to_read(path) as file:
        return file.read()


# ---- Writing files ----

LONGEST_NAME = 255
"""Bytes that the name of a file may have."""


def write_new(path: Path, content: bytes | Iterator[bytes], *, sync: bool = True) -> None:
    """Write a file that does not exist yet, all at once or in pieces, and wait until its content is on disk."""
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        _write_pieces(descriptor, content, sync=sync)
    finally:
        os.close(descriptor)


def _write_pieces(descriptor: int, content: bytes | Iterator[bytes], *, sync: bool) -> None:
    for piece in (content,) if isinstance(content, bytes) else content:
        write_all(descriptor, piece)
    if sync:
        os.fsync(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte. A single `os.write` may write only a part, for example on a nearly full disk."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Make the names in the directory permanent."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes | Iterator[bytes], *, sync: bool = True) -> None:
    """Write the file so that it has its old content or its new content, never a part of it.

    Several processes may write the same file: each waits for the one before it, and the last one stays.

    Args:
        path: The file. Its directory must exist.
        content: The new content, or its pieces, which need not fit into memory together.
        sync: Wait until the file is on disk. Pass False for many small files that can be made again.
    """
    temporary = _temporary_path(path)
    descriptor = _create_locked(temporary)
    try:
        _write_pieces(descriptor, content, sync=sync)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    if sync:
        sync_directory(path.parent)


def _temporary_path(path: Path) -> Path:
    """Return the path of the unfinished file. For a name that would get too long, it has a hash in its place."""
    name = f".{path.name}.writing"
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}.writing"
    return path.with_name(name)


def _create_locked(path: Path) -> int:
    """Create a file and lock it. A file of a killed process is removed; a process that writes one is waited for.

    The lock belongs to the open file, and the system releases it when the process ends for any reason.
    """
    while True:
        try:
            descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            _remove_unlocked(path)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # a file system without locks, on which concurrent writers would disturb each other
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        if _is_open_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # another process removed it before it was locked


def _remove_unlocked(path: Path) -> None:
    """Remove a file as soon as no process holds its lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError:  # a link, or a file that may not be read: no process of truedrift holds it
        path.unlink(missing_ok=True)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_open_at(path, descriptor):
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _is_open_at(path: Path, descriptor: int) -> bool:
    """Return whether the path is the open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def make_directory(path: Path) -> None:
    """Make the directory and its parents, and make their names permanent."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def remove_tree(path: Path, first: str) -> None:
    """Remove a directory, its file `first` before the others. Anything else with that name is removed too."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        (path / first).unlink(missing_ok=True)
        sync_directory(path)
        shutil.rmtree(path)


# ---- Scratch directories ----

SETTLING_SECONDS = 60
"""A scratch directory that is younger may not be locked yet."""


@contextmanager
def scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """Make an empty directory, which is removed at the end. What killed processes left is removed at the start.

    The directory is locked while it is used, and the system releases the lock when the process ends for any reason.

    Args:
        parent: An existing directory.
        prefix: The beginning of the name, such as ".fetching-".

    Raises:
        OSError: If the parent cannot be written.
    """
    for abandoned in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            if abandoned.stat().st_mtime < time.time() - SETTLING_SECONDS and not _is_locked(abandoned):
                shutil.rmtree(abandoned)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as name:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(descriptor)


def _is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# ---- JSON lines ----


def iterate_json_lines(path: Path, *, last_bytes: int | None = None, strict: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file, with one line in memory at a time.

    A last line without a newline is torn and does not count.

    Args:
        path: The file.
        last_bytes: Read only the whole lines among the last bytes of the file.
        strict: Report an unreadable file or line. By default the line is skipped, and a missing file has no lines.

    Raises:
        UserError: If `strict`, and the file or one of its lines cannot be read.
    """
    try:
        with open_to_read(path) as file:
            start = 0 if last_bytes is None else max(0, file.seek(0, os.SEEK_END) - last_bytes)
            file.seek(start)
            if start:
                file.readline()  # it may lack its beginning
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                entry = parse_json_line(line)
                if entry is not None:
                    yield entry
                elif strict:
                    raise UserError(
                        f"line {number} of {str(path)!r} is not a JSON object",
                        "must have one object per line",
                        "remove that line",
                    )
    except OSError as error:
        if strict:
            raise UserError(
                f"{str(path)!r} cannot be read ({error.strerror})", "must be a JSON-lines file", "check the path"
            ) from None


def read_json_lines(path: Path, *, last_bytes: int | None = None, strict: bool = False) -> list[dict[str, Any]]:
    """Return all objects that `iterate_json_lines` yields."""
    return list(iterate_json_lines(path, last_bytes=last_bytes, strict=strict))


def parse_json_line(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object on the line, or None if there is none."""
    try:
        return decode_json_line(line)
    except (ValueError, RecursionError):
        return None


def decode_json_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object on the line; raise ValueError or RecursionError if there is none."""
    entry = _DECODER.decode(line.decode())
    if not isinstance(entry, dict):
        raise ValueError(f"{type(entry).__name__} is not a JSON object")
    return entry


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)
"""Made once, since a file may have a million lines."""


def append_json_line(path: Path, entry: Mapping[str, Any]) -> None:
    """Append the object as the last line, on a new line if the file ends in a torn one."""
    line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        torn = file.read() not in (b"", b"\n")
        file.write(b"\n" + line if torn else line)


# ---- JSON with a hash ----

_NO_HASH, _END = b"0" * 64, b'"\n}\n'
"""The end of a file whose last entry is its hash."""


def to_hashed_json(tree: Mapping[str, Any]) -> bytes:
    """Serialize with one more entry, `sha256`: that of the bytes with zeros in the place of the hash."""
    text = json.dumps({**tree, "sha256": _NO_HASH.decode()}, indent=2, ensure_ascii=False).encode() + b"\n"
    return text.removesuffix(_NO_HASH + _END) + hashlib.sha256(text).hexdigest().encode() + _END


def matches_its_hash(content: bytes) -> bool:
    """Return whether the bytes are what `to_hashed_json` returned."""
    start = len(content) - len(_NO_HASH + _END)
    expected = hashlib.sha256(content[:start] + _NO_HASH + _END).hexdigest().encode()
    return content[start:] == expected + _END


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
        content, expected = read_regular(path), read_regular(_hash_path(path)).decode().strip()
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
