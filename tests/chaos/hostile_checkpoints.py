"""Hostile checkpoints: pickles and safetensors files for `convert`, and manifests of runs with a right hash.

A run whose newest manifest has wrong fields continues from the checkpoint before it.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truedrift.generators import DriftDiTOptions, build
from truedrift.quarantine import convert
from truedrift.training import checkpoint

from .hostile import CANARY, NO_FILES, READ, Hostile, hostile_attack
from .hostile_arrays import ARRAYS, BOMB, ESCAPE, Payload, write_no_file
from .hostile_text import skip_drawing
from .runs import STEPS, Bench, train_arguments
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


# ---- Manifests ----

MANIFESTS: dict[str, dict[str, Any]] = {
    "no facts": {"facts": {}},
    "facts that are a list": {"facts": []},
    "metrics_offset of text": {"facts": {"metrics_offset": "x"}},
    "metrics_offset below 0": {"facts": {"metrics_offset": -5}},
    "metrics_offset of 10³⁰": {"facts": {"metrics_offset": 10**30}},
    "best of 3": {"facts": {"best": 3}},
    "best without a step": {"facts": {"best": {}}},
    "metrics that are a list": {"facts": {"metrics": [1]}},
    "energy of text": {"facts": {"energy": "x"}},
    "an infinite step": {"step": float("inf")},
    "a run that is a list": {"run": [1]},
    "a file that is a number": {"files": {"ema.safetensors": 3}},
}
"""Changed fields of a manifest. Facts that are not named here stay as they are."""


def write_manifest(folder: Path, bench: Bench, command: str, changes: dict[str, Any]) -> list[str]:
    """Copy a complete run, and change its newest manifest and the hash in it."""
    run = bench.copy(bench.complete, folder)
    path = run / "checkpoints" / checkpoint.directory_name(STEPS) / "manifest.json"
    content = json.loads(path.read_bytes())
    facts = changes.get("facts")
    content |= changes | ({"facts": content["facts"] | facts} if facts else {})
    del content["sha256"]  # to be the last entry
    text = json.dumps(content | {"sha256": "0" * 64}, indent=1)
    path.write_text(text.replace(f'"{"0" * 64}"', f'"{hashlib.sha256(text.encode()).hexdigest()}"'))
    if command == "train":
        return train_arguments(run)
    return [command, str(run), "--out", str(folder / ("samples.png" if command == "sample" else "report"))]


def manifest_cases(bench: Bench) -> list[Hostile]:
    """Return every manifest for every command; each uses the checkpoint before it."""
    return [
        Hostile(
            f"{name}, {command}",
            partial(write_manifest, bench=bench, command=command, changes=changes),
            READ,
            before=(skip_drawing,) if command == "report" else (),
        )
        for name, changes in MANIFESTS.items()
        for command in ("train", "sample", "report")
    ]


def accept_all_fields() -> None:
    """Break the reader: the hash is right, so the fields are taken as they are."""
    checkpoint._require_fields = lambda *rest: None


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
        hostile_attack(
            bench,
            "manifests with a right hash and wrong fields: train, sample, report",
            manifest_cases(bench),
            harmless=partial(write_manifest, bench=bench, command="train", changes={}),
            control="any fields accepted",
            broken=accept_all_fields,
            red="metrics_offset of text, train",
        ),
    ]
