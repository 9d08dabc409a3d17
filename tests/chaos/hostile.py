"""Hostile files: what every reader has in common.

A file is refused with status 2 and one line, or read. In any case the command ends in time, with bounded memory,
without a traceback and without control characters on the terminal; it executes nothing, and it writes to no file
outside its own.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .commands import Before, find_problem
from .runs import Bench
from .table import Attack

READ, REFUSED, READ_OR_REFUSED = (0,), (2,), (0, 2)
"""Exit statuses that are allowed."""
CANARY = "executed"
"""A file that code inside of a hostile file would make."""
PRECIOUS = b"precious"


@dataclass(frozen=True)
class Hostile:
    """A hostile file, and the command that reads it."""

    name: str
    write: Callable[[Path], Sequence[str]] = field(repr=False)
    """Writes it below a folder, and returns the arguments of the command."""
    allowed: tuple[int, ...] = REFUSED
    before: tuple[Before, ...] = ()
    """Called in the process of the command."""
    inspect: Callable[[Path], str | None] = field(default=lambda folder: None, repr=False)
    """Returns what is wrong with the files that the command has written below the folder."""

    def attempt(self, bench: Bench, before: Sequence[Before]) -> str | None:
        """Run the command; return what was wrong."""
        folder = bench.new_folder()
        elsewhere = folder / "elsewhere"
        elsewhere.write_bytes(PRECIOUS)
        ended = bench.run(self.write(folder), folder / "output", [*self.before, *before])
        problem = find_problem(ended, self.allowed)
        if (folder / CANARY).exists():
            return "code in the file was executed"
        if elsewhere.read_bytes() != PRECIOUS:
            return "a file elsewhere was overwritten"
        if problem is None and self.allowed == REFUSED and (left := find_scratch(folder)):
            return f"left over: {left}"
        return problem or self.inspect(folder)


def find_scratch(folder: Path) -> list[str]:
    """Return temporary files and directories of truedrift."""
    patterns = (".truedrift-*", ".fetching-*", ".writing-*", ".*.writing")
    return sorted(path.name for pattern in patterns for path in folder.rglob(pattern))


def hostile_attack(
    bench: Bench,
    name: str,
    cases: Sequence[Hostile],
    *,
    harmless: Callable[[Path], Sequence[str]],
    control: str,
    broken: Before,
    red: str,
) -> Attack:
    """Return the attack with these files.

    Args:
        bench: Where it takes place.
        name: Name of the attack.
        cases: The hostile files. They are read in a random order.
        harmless: Writes a file of the same kind that must be read, so that the others are refused for what they are.
        control: What is broken in the negative control.
        broken: Breaks it.
        red: Name of the case that the broken program does not survive.
    """
    mixed = [Hostile("harmless", harmless, READ), *random.Random(name).sample(list(cases), len(cases))]
    (red_case,) = (case for case in cases if case.name == red)
    return Attack(
        name,
        lambda rng, number: mixed[number % len(mixed)],
        lambda case, before: case.attempt(bench, before),
        control=control,
        broken=broken,
        control_draw=lambda rng, number: red_case,
        cases=len(mixed),
        control_tries=1,
        quick_tries=3,
    )


# ---- Things that are no regular files ----


def place_fifo(path: Path, folder: Path) -> None:
    os.mkfifo(path)


def place_socket(path: Path, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/{path.name}")  # a path of any length
        os.close(here)


def place_directory(path: Path, folder: Path) -> None:
    path.mkdir()


def place_link(path: Path, folder: Path, target: str) -> None:
    path.symlink_to(target)


def place_link_elsewhere(path: Path, folder: Path) -> None:
    path.symlink_to(folder / "elsewhere")


NO_FILES: dict[str, Callable[[Path, Path], None]] = {
    "FIFO": place_fifo,
    "socket": place_socket,
    "directory": place_directory,
    "link to /dev/zero": partial(place_link, target="/dev/zero"),
    "link to nothing": partial(place_link, target="nothing"),
    "link to itself": lambda path, folder: path.symlink_to(path),
}
"""Functions (path, folder of the try) that put something in the place of a file."""


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Change a few bytes, cut, repeat or insert a piece."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 2, 8, 64))):
        place = rng.randrange(len(data))
        match rng.randrange(6):
            case 0 | 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                data[place : place + 4] = rng.randbytes(4)
            case 3:
                data[place : place + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"))
            case 4:
                data[place:place] = data[place : place + rng.randrange(1, 200)]
            case 5:
                del data[place : place + rng.randrange(1, 200)]
        if not data:
            return b""
    return bytes(data)
