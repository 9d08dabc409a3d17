"""Streaming centroids over 10⁶ references: 256 queries, D = 64, chunks that are computed on demand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.memory import peak_extra_bytes
from benchmarks.results import Result
from benchmarks.timing import best_window_medians
from truedrift.centroids import streaming_centroid

TITLE = "Streaming centroid, 256 queries, 10⁶ references, D = 64"
REFERENCES, CHUNK, D = 1_000_000, 50_000, 64


def measure() -> list[Result]:
    """Measure ABC and ABC-2 against the plain centroid, and the peak memory."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, D, generator=generator)
    pool = torch.randn(CHUNK, D, generator=generator)

    def run(estimator: str) -> Tensor:
        return streaming_centroid(x, _chunks(pool), tau=1.0, estimator=estimator)

    estimators = ("standard", "abc", "abc2")
    seconds = best_window_medians({name: partial(run, name) for name in estimators}, windows=8, repeats=1, warm_up=1)
    return [
        Result("streaming ABC / streaming standard", seconds["abc"] / seconds["standard"], "×", "≤", 1.3),
        Result("streaming ABC-2 / streaming standard", seconds["abc2"] / seconds["standard"]),
        Result("streaming standard", seconds["standard"], "s"),
        Result("peak extra memory of streaming ABC", peak_extra_bytes(partial(run, "abc")) / 1e6, "MB", "≤", 300),
    ]


def _chunks(pool: Tensor) -> Iterator[Tensor]:
    """Yield REFERENCES references in chunks: the pool, shifted a little for each chunk."""
    for k in range(REFERENCES // CHUNK):
        yield pool + 0.01 * k
