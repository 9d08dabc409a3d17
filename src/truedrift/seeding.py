"""Random numbers as a pure function of (seed, what they are for, step, block): never global state, never a rank.

A name and its numbers are hashed to the seed of a `torch.Generator` of its own. Two purposes never share a stream, a
step can be drawn again without the steps before it, and every process of a run draws the same numbers.
"""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, purpose: str, *numbers: int) -> torch.Generator:
    """A generator on the CPU for `purpose` at `numbers`, such as stream(42, "noise", step)."""
    name = "/".join((str(seed), purpose, *map(str, numbers)))
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
