"""Hostile checkpoints for `convert`: pickles that hold code or unfold, and damaged safetensors files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truedrift.generators import DriftDiTOptions, build
from truedrift.quarantine import convert

from .hostile import CANARY, NO_FILES, Hostile, hostile_attack
from .hostile_arrays import ARRAYS, BOMB, ESCAPE, Payload, write_no_file
from .runs import Bench
from .table import Attack


def convert_command(file: Path) -> list[str]:
    return ["convert", str(file), "--out", str(file.parent / "converted")]


def write_checkpoint(folder: Path, name: str, content: bytes) -> list[str]:
    (folder / name).write_bytes(content)
    return convert_command(folder / name)


def write_saved(folder: Path, make: Callable[[Path], Any], legacy: bool = False) -> list[str]:
    """Write an object with `torch.save`."""
    torch.save(make(folder), folder / "a.pt", _use_new_zipfile_serialization=not legacy)
    return convert_command(folder / "a.pt")


def nested(depth: int) -> Any:
    """Return a tensor in that many dictionaries, each of which holds the next one twice."""
    value: Any = {"w": torch.ones(2)}
    for _ in range(depth):
        value = {"a": value, "b": value}
    return value


WEIGHT = {"weight": torch.ones(2, 2)}
PICKLES: dict[str, Callable[[Path], list[str]]] = {
    "code": partial(write_saved, make=lambda folder: WEIGHT | {"more": Payload(folder / CANARY)}),
    "zero-stride tensor of 4 GB": partial(
        write_saved, make=lambda folder: {"w": torch.zeros(1).expand(1 << 15, 1 << 15)}
    ),
    "code, legacy format": partial(write_saved, make=lambda folder: [Payload(folder / CANARY)], legacy=True),
    "code in a plain pickle": lambda folder: write_checkpoint(folder, "a.pkl", pickle.dumps(Payload(folder / CANARY))),
    "2³⁰ entries in 2 kB": partial(write_saved, make=lambda folder: nested(11)),
    "text": partial(write_checkpoint, name="a.pt", content=b"no pickle"),
    "nothing": partial(write_checkpoint, name="a.pth", content=b""),
    "opcodes that nest": partial(write_checkpoint, name="a.bin", content=b"\x80\x02" + b"(" * 100_000 + b"."),
    "a number of 100 MB": partial(
        write_checkpoint, name="a.ckpt", content=b"\x80\x02\x8b\x00\xe1\xf5\x05" + bytes(9) + b"."
    ),
    "280 MB of zeros in 0.3 MB": partial(
        write_checkpoint, name="a.pt", content=BOMB.replace(b"references.npy", b"arch1/data.pkl")
    ),
    "no network": partial(write_saved, make=lambda folder: WEIGHT),
    "control characters": partial(write_saved, make=lambda folder: {ESCAPE: torch.ones(2), "b": ESCAPE}),
    "sparse tensor": partial(write_saved, make=lambda folder: {"w": torch.eye(3).to_sparse()}),
    "whole module": partial(write_saved, make=lambda folder: torch.nn.Linear(2, 2)),
}


def checkpoint_cases() -> list[Hostile]:
    """Return pickles, safetensors files, and things that are no files."""
    cases = [Hostile(name, write) for name, write in PICKLES.items()]
    cases += [
        Hostile(f"safetensors: {name}", partial(write_checkpoint, name="a.safetensors", content=content))
        for name, (extension, content) in ARRAYS.items()
        if extension == "safetensors"
    ]
    return cases + [
        Hostile(f"{what} as {name}", partial(write_no_file, place=place, name=name, command=convert_command))
        for what, place in NO_FILES.items()
        for name in ("a.pt", "a.safetensors")
    ]


def unpickle_everything() -> None:
    """Break the reader: it loads any object, as `torch.load` did by default for years."""
    run, source = convert._run, Path(convert.reader.__file__).read_text()

    def run_unsafe_reader(command: list[str], *rest: Any) -> Any:
        unsafe = source.replace("weights_only=True", "weights_only=False")
        return run([*command[:2], "-c", unsafe, *command[3:]], *rest)

    convert._run = run_unsafe_reader


def write_published(folder: Path) -> list[str]:
    """Write a checkpoint of a small DriftDiT."""
    options = DriftDiTOptions(width=16, depth=1, heads=2, registers=1, patch=2, style_entries=0, style_draws=0)
    network = build(options, sample_shape=(1, 8, 8), classes=2, seed=0)
    torch.save(network.to_published(), folder / "a.pt")
    return convert_command(folder / "a.pt")


def attacks(bench: Bench) -> list[Attack]:
    return [
        hostile_attack(
            bench,
            "hostile checkpoints: convert",
            checkpoint_cases(),
            harmless=write_published,
            control="any object unpickled",
            broken=unpickle_everything,
            red="code",
        ),
    ]
