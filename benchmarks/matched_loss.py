"""The drift loss with matched references against the same sizes without: forward and backward.

40 groups × 3 temperatures, D = 384, row normalization, separate form. The windows are blocks (126 positives and 8
generated features: 18 windows of 7) or leave-one-out (8 and 8: the closed form). The number of operators does not
depend on the number of windows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.operators import count_operators
from benchmarks.results import Result
from benchmarks.timing import best_window_medians
from truedrift.objective import drift_loss, gram

GROUPS, D, GENERATED = 40, 384, 8
ROW = {"normalization": "row", "form": "separate"}
TITLE = f"Matched references, loss forward and backward, {GROUPS} groups × 3 temperatures, g = {GENERATED}, D = {D}"


def measure() -> list[Result]:
    """Measure the cost of matching by blocks, by leave-one-out windows, and with the symmetric normalization."""
    ratios = {n: _seconds(n) for n in (GENERATED, 126)}
    blocks, closed = ratios[126], ratios[GENERATED]
    counts = [_operators(n, matched=True) for n in (70, 98, 126)]
    return [
        Result("matched / not, 126 positives, blocks", blocks["matched"] / blocks["plain"], "×", "≤", 1.25),
        Result("matched / not, 8 positives, leave-one-out", closed["matched"] / closed["plain"], "×", "≤", 1.5),
        Result("symmetric, matched / bidirectional, 126 positives", blocks["symmetric"] / blocks["bidirectional"]),
        Result("symmetric, matched / bidirectional, 8 positives", closed["symmetric"] / closed["bidirectional"]),
        Result("126 positives / 8 positives, matched", blocks["matched"] / closed["matched"]),
        Result("operators, most / fewest over 10 to 18 windows", max(counts) / min(counts), "×", "≤", 1),
        Result("matched, 8 positives", closed["matched"] * 1e3, "ms"),
    ]


def _features(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    gen = torch.randn(GROUPS, GENERATED, D, generator=generator, requires_grad=True)
    return gen, torch.randn(GROUPS, n, D, generator=generator) + 0.3


def _seconds(n: int) -> dict[str, float]:
    gen, pos = _features(n)
    variants = {
        "plain": ROW,
        "matched": ROW | {"matched": True},
        "bidirectional": {},
        "symmetric": {"normalization": "symmetric", "matched": True},
    }
    steps: dict[str, Callable[[], object]] = {
        name: partial(_step, gen, pos, options) for name, options in variants.items()
    }
    return best_window_medians(steps, windows=20, repeats=9)


def _step(gen: Tensor, pos: Tensor, options: dict[str, object]) -> None:
    gen.grad = None
    drift_loss(gen, pos, **options).loss.mean().backward()  # type: ignore[arg-type]


def _operators(n: int, *, matched: bool) -> int:
    gen, pos = _features(n)
    with patch.object(gram, "BLOCK_ELEMENTS", 1 << 40):
        return count_operators(partial(_step, gen, pos, ROW | {"matched": matched})).called
