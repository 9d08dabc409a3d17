"""Sums of finished queries in a file, so that an interrupted run goes on where it was, with the same digits.

The file is named by a hash of everything that the sums depend on, so that other settings have another file. It has one
line a query. JSON keeps every digit of a float; a line that a crash has torn is passed over, and its query computed
again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Tensor

Sums = tuple[Tensor, Tensor]
"""(Σ e [len(n), D], Σ e eᵀ [len(n), D, D]) over trials."""


class Kept:
    """Finished queries in a file of the directory."""

    def __init__(self, directory: Path, fingerprint: str) -> None:
        self.path = directory / f"trials-{fingerprint[:16]}.jsonl"
        self.sums = {
            line["query"]: {name: _tensors(each) for name, each in line["sums"].items()}
            for line in _lines(self.path)
            if line.keys() == {"query", "sums"}
        }
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a") as file:
                file.write("\n")

    def read(self, query: int) -> dict[str, Sums] | None:
        """The sums of that query, if they are known."""
        return self.sums.get(query)

    def add(self, query: int, sums: dict[str, Sums]) -> None:
        """One more query is complete."""
        plain = {name: [each.tolist() for each in pair] for name, pair in sums.items()}
        with self.path.open("a") as file:
            file.write(json.dumps({"query": query, "sums": plain}, allow_nan=False) + "\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
    return found


def _tensors(pair: list[Any]) -> Sums:
    first, second = (torch.tensor(each, dtype=torch.float64) for each in pair)
    return first, second
