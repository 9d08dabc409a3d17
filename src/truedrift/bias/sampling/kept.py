"""Sums of finished queries in a file, so that an interrupted run goes on where it was, with the same digits.

The file is named by a hash of everything that the sums depend on, so that other settings have another file. It has one
line a query. JSON keeps every digit of a float; a line that a crash has torn is passed over, and its query computed
again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Tensor

Sums = tuple[Tensor, Tensor]
"""(Σ e [len(n), D], Σ e eᵀ [len(n), D, D]) over trials."""


def fingerprint(told: tuple[Any, ...], *tensors: Tensor) -> str:
    """A hash of settings, by their repr, and of tensors."""
    digest = hashlib.sha256(repr(told).encode())
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


class Kept:
    """Finished queries in a file of the directory: for each name sums of the given shape."""

    def __init__(self, directory: Path, fingerprint: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"trials-{fingerprint[:16]}.jsonl"
        self.sums = dict(filter(None, (_query(line, shapes) for line in _lines(self.path))))
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a") as file:
                file.write("\n")

    def read(self, query: int) -> dict[str, Sums] | None:
        """The sums of that query, if they are known."""
        return self.sums.get(query)

    def add(self, query: int, sums: Mapping[str, Sums]) -> None:
        """One more query is complete."""
        plain = {name: [each.tolist() for each in pair] for name, pair in sums.items()}
        with self.path.open("a") as file:
            file.write(json.dumps({"query": query, "sums": plain}, allow_nan=False) + "\n")


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _query(line: bytes, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, dict[str, Sums]] | None:
    """A line's query and sums; None if it is not whole."""
    try:
        entry = json.loads(line)
        sums = {name: _sums(entry["sums"][name], shape) for name, shape in shapes.items()}
        return int(entry["query"]), sums
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _sums(pair: Any, shape: tuple[int, ...]) -> Sums:
    first, second = (torch.tensor(each, dtype=torch.float64) for each in pair)
    if first.shape != shape or second.shape != (*shape, shape[-1]):
        raise ValueError("sums of another shape")
    return first, second
