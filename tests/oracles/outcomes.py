"""The outcome of a run, which kills and damage must not change: its final state and its metrics."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from truedrift.training import checkpoint, open_run


@dataclass(frozen=True)
class Outcome:
    """The sha256 of all tensors of the last checkpoint, and the lines of metrics.jsonl without their timing."""

    state: str
    metrics: tuple[str, ...]


def read_outcome(run: Path) -> Outcome:
    return Outcome(hash_state(run), read_lines(run))


def hash_state(run: Path) -> str:
    """Hash every tensor of the last checkpoint: file, name, dtype, shape, bytes."""
    directory = run / "checkpoints"
    last = checkpoint.load(directory / checkpoint.directory_name(checkpoint.steps(directory)[-1]), run=open_run(run).id)
    sha256 = hashlib.sha256(f"{last.step} {last.facts['skipped']} {last.facts['best']}".encode())
    for file, tensors in sorted(last.tensors.items()):
        for name, tensor in sorted(tensors.items()):
            sha256.update(f"{file} {name} {tensor.dtype} {list(tensor.shape)}".encode())
            sha256.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()


def read_lines(run: Path) -> tuple[str, ...]:
    """Read the lines of metrics.jsonl without the timing, which depends on the machine."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return tuple(json.dumps({name: value for name, value in line.items() if name != "timing"}) for line in lines)
