"""Hostile arrays in .npy, .npz and .safetensors files for `diagnose` and `bias`."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truedrift.data import array_files

from .hostile import CANARY, NO_FILES, READ_OR_REFUSED, REFUSED, Hostile, hostile_attack, mutate
from .runs import Bench
from .table import Attack

# ---- .npy, .npz and .safetensors ----


def npy_header(text: str, version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    """Return the header of a .npy file with this description of the array."""
    body = text.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(body) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + body


def describe(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"


def to_npy(array: np.ndarray[Any, Any], allow_pickle: bool = False) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=allow_pickle)
    return content.getvalue()


def to_npz(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def to_zip(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


def zip_bomb(name: str, beginning: bytes, zeros: int) -> bytes:
    """Return an archive of one member: a beginning, and that many MiB of zeros, which were never in memory."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(beginning) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    data = first + block * zeros + packer.flush()
    size, encoded = len(beginning) + (zeros << 20), name.encode()
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, len(data), size, len(encoded), 0)
    local = b"PK\x03\x04" + fields + encoded + data
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + encoded
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def set_password_flag(archive: bytes) -> bytes:
    """Say of every member that it is encrypted."""
    data = bytearray(archive)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(signature)
        while place >= 0:
            data[place + offset] |= 1
            place = data.find(signature, place + 4)
    return bytes(data)


def to_safetensors(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    body = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(body) if length is None else length) + body + data


def tensor_header(name: str = "queries", dtype: str = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> str:
    return json.dumps({name: {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}})


class Payload:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.trace}",)


ESCAPE = "\x1b[31mred\x07\u202e"
POINTS = np.arange(40, dtype=np.float32).reshape(20, 2) / 7
VALID = {"queries": POINTS[:5], "references": POINTS, "pool": POINTS}
FEATURES = {
    "queries": np.random.default_rng(0).normal(size=(20, 3)),
    "references": np.random.default_rng(1).normal(size=(200, 3)),
}
BOMB = zip_bomb("references.npy", npy_header(describe(f"({(280 << 20) // 8}, 2)")), 280)

ENDLESS = zip_bomb("references.npy", npy_header(describe("(-1, 5)")), 480)

ARRAYS: dict[str, tuple[str, bytes]] = {
    "280 MB of zeros in 0.3 MB": ("npz", BOMB),
    "480 MB of zeros behind a negative size": ("npz", ENDLESS),
    "two arrays of one name": ("npz", to_npz(VALID | {"referenceX": POINTS}).replace(b"referenceX", b"references")),
    "nothing": ("npy", b""),
    "text": ("npy", b"no array at all"),
    "shape of 4 TB": ("npy", npy_header(describe("(1000000000000,)"))),
    "shape beyond 64 bits": ("npy", npy_header(describe("(9223372036854775807, 9223372036854775807)"))),
    "shape of a negative size": ("npy", npy_header(describe("(-1, 2)")) + bytes(64)),
    "shape of text": ("npy", npy_header(describe("'many'"))),
    "shape of booleans": ("npy", npy_header(describe("(True, 2)")) + bytes(64)),
    "header of 4 GB": ("npy", npy_header("{}", (2, 0), 0xFFFFFFFF)),
    "header of parentheses": ("npy", npy_header("(" * 60_000)),
    "header of sums": ("npy", npy_header("1+" * 30_000 + "1")),
    "header that is code": ("npy", npy_header(describe("__import__('os').system('touch executed')"))),
    "version 9": ("npy", npy_header(describe("(2,)"), (9, 0))),
    "dtype of 1 GB": ("npy", npy_header(describe("(1,)", "'<U268435456'"))),
    "dtype of fields": ("npy", npy_header(describe("(1,)", "[('a', '<f4'), ('b', '|O')]"))),
    "dtype of subarrays": ("npy", npy_header(describe("(1,)", "('<f4', (1000000, 1000000))"))),
    "cut": ("npy", to_npy(POINTS)[:-1]),
    "not finite": ("npz", to_npz(VALID | {"references": POINTS + np.float32("nan")})),
    "complex": ("npz", to_npz(VALID | {"references": POINTS * 1j})),
    "empty arrays": ("npz", to_npz({name: array[:0] for name, array in VALID.items()})),
    "name with control characters": ("npz", to_npz({ESCAPE: POINTS, "\x9b2Jpool": POINTS})),
    "names of 2,000 arrays": ("npz", to_npz({f"a{k}": POINTS[:1] for k in range(2000)})),
    "member that leads elsewhere": ("npz", to_zip({"../elsewhere.npy": to_npy(POINTS), "/etc/x.npy": b"1"})),
    "archive of text": ("npz", to_zip({"queries.npy": b"text", "references.npy": b""})),
    "archive with a password": ("npz", set_password_flag(to_npz(VALID))),
    "archive that is cut": ("npz", to_npz(VALID)[:-30]),
    "header of 2⁶³ bytes": ("safetensors", to_safetensors("{}", length=1 << 63)),
    "header of 100 GB": ("safetensors", to_safetensors("{}", length=100 << 30)),
    "header of nested lists": ("safetensors", to_safetensors('{"queries": ' + "[" * 100_000)),
    "offsets beyond the file": ("safetensors", to_safetensors(tensor_header(offsets=(0, 1 << 40)), bytes(16))),
    "offsets that overlap": (
        "safetensors",
        to_safetensors(json.dumps(json.loads(tensor_header()) | json.loads(tensor_header("pool"))), bytes(16)),
    ),
    "shape that does not fit": ("safetensors", to_safetensors(tensor_header(shape=(1 << 40, 2)), bytes(16))),
    "shape that overflows": ("safetensors", to_safetensors(tensor_header(shape=(1 << 62, 8)), bytes(16))),
    "dtype that is unknown": ("safetensors", to_safetensors(tensor_header(dtype="F3"), bytes(16))),
    "key with control characters": ("safetensors", to_safetensors(tensor_header(ESCAPE), bytes(16))),
}
"""Extension and content."""


def array_command(file: Path) -> list[str]:
    """Return a command that reads the file: `diagnose` for every other one, else `bias`."""
    if len(file.stem) % 2:
        return ["bias", str(file), "--tau", "0.1", "--n", "4"]
    array = ("--array", "distances") if file.suffix == ".npy" else ()
    return ["diagnose", str(file), "--tau", "0.1", "--n", "8", *array]


def write_array(folder: Path, stem: str, extension: str, content: bytes) -> list[str]:
    file = folder / f"{stem}.{extension}"
    file.write_bytes(content)
    return array_command(file)


def write_pickled_array(folder: Path) -> list[str]:
    objects = np.array([Payload(folder / CANARY)], dtype=object)
    return write_array(folder, "ab", "npy", to_npy(objects, allow_pickle=True))


def write_no_file(
    folder: Path, place: Callable[[Path, Path], None], name: str, command: Callable[[Path], list[str]]
) -> list[str]:
    """Put something that is no regular file in the place of a file."""
    place(folder / name, folder)
    return command(folder / name)


def array_cases() -> list[Hostile]:
    """Return every array for both commands, and things that are no files."""
    cases = [
        Hostile(
            f"{name}, {command}",
            partial(write_array, stem=stem, extension=extension, content=content),
            READ_OR_REFUSED if "control characters" in name else REFUSED,
        )
        for name, (extension, content) in ARRAYS.items()
        for stem, command in (("ab", "diagnose"), ("abc", "bias"))
    ]
    cases += [
        Hostile(f"{what} as {name}", partial(write_no_file, place=place, name=name, command=array_command))
        for what, place in NO_FILES.items()
        for name in ("ab.npy", "abc.npz", "ab.safetensors")
    ]
    return [*cases, Hostile("pickled objects", write_pickled_array)]


def draw_mutated_array(rng: random.Random, number: int) -> Hostile:
    """Return a valid file with a few changed bytes."""
    from safetensors.torch import save

    extension = ("npz", "safetensors", "npy")[number % 3]
    if extension == "npy":
        content = to_npy(POINTS)
    elif extension == "npz":
        content = to_npz(VALID)
    else:
        content = save({name: torch.from_numpy(array.copy()) for name, array in VALID.items()})
    mutated = mutate(content, rng)
    write = partial(write_array, stem=rng.choice(("ab", "abc")), extension=extension, content=mutated)
    return Hostile(f"{extension} with changed bytes", write, READ_OR_REFUSED)


def allow_any_size() -> None:
    """Break the reader: the sum of all arrays has no limit."""
    array_files._Budget.take = lambda self, size: None  # type: ignore[method-assign]


def leave_errors() -> None:
    """Break the reader: defects of a file are not caught."""
    array_files.UserError = type("Uncaught", (Exception,), {"__str__": lambda self: str(self.args)})


def attacks(bench: Bench) -> list[Attack]:
    return [
        hostile_attack(
            bench,
            "hostile arrays: diagnose, bias",
            array_cases(),
            harmless=partial(write_array, stem="ab", extension="npz", content=to_npz(FEATURES)),
            control="no limit for the sum of arrays",
            broken=allow_any_size,
            red="280 MB of zeros in 0.3 MB, diagnose",
        ),
        Attack(
            "arrays with changed bytes: diagnose, bias",
            draw_mutated_array,
            lambda case, before: case.attempt(bench, before),
            control="defects of a file not caught",
            broken=leave_errors,
            quick_tries=4,
        ),
    ]
