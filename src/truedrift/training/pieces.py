"""A long file written piece by piece, so that a process that is killed on the way loses minutes of it and not hours.

Beside the file stands a number: how many pieces are on the disk. A later call cuts off what came after them and goes on
from there. A disk that is full is left as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from io import BufferedRandom
from pathlib import Path

from truedrift.files import write_atomically

SYNC_EVERY = 32
"""Pieces between two times that the disk is waited for."""


def write_pieces(path: Path, sizes: Sequence[int], piece: Callable[[int], bytes]) -> None:
    """Write `piece(k)`, of `sizes[k]` bytes, for every k; those that an earlier call brought to the disk are there."""
    done = _on_disk(path, sizes)
    try:
        with path.open("r+b" if done else "w+b") as file:
            file.truncate(sum(sizes[:done]))
            file.seek(0, os.SEEK_END)
            try:
                while done < len(sizes):
                    file.write(piece(done))
                    done += 1
                    if done % SYNC_EVERY == 0:
                        _note(path, file, done)
            finally:
                _note(path, file, done)
    except OSError:
        remove(path)
        raise


def remove(path: Path) -> None:
    """The file and the number beside it, if they are there."""
    path.unlink(missing_ok=True)
    _number(path).unlink(missing_ok=True)


def _on_disk(path: Path, sizes: Sequence[int]) -> int:
    """How many pieces an earlier call left; none where number and file do not agree."""
    try:
        done, there = int(_number(path).read_text()), path.stat().st_size
    except (OSError, ValueError):
        return 0
    return done if 0 <= done <= len(sizes) and sum(sizes[:done]) <= there else 0


def _note(path: Path, file: BufferedRandom, done: int) -> None:
    """The number is written after the pieces that it counts."""
    file.flush()
    os.fsync(file.fileno())
    write_atomically(_number(path), f"{done}\n".encode())


def _number(path: Path) -> Path:
    return path.with_name(f"{path.name}.pieces")
