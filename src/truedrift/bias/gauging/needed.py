"""The n from which on a bias stays below the wanted one, by exact biases at a few n.

A geometric grid from 1 to the number of references finds the last interval in which the bias crosses; two rounds of
five trials in it narrow that to about 5 %, and the upper end is the answer. The bias may rise before it falls: the last
crossing counts. Beyond the number of references a power law continues from there, n^−k for an estimator of bias
order k, and is marked as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

POINTS = 8
TRIES, ROUNDS = 5, 2
LARGEST = 1 << 31

MeanNorm = Callable[[Sequence[int]], list[float]]
"""n → mean over queries of ‖bias‖ at each."""


@dataclass(frozen=True)
class Needed:
    """n, or None if it would be beyond 2³¹."""

    n: int | None
    extrapolated: bool


def between(low: int, high: int) -> tuple[int, ...]:
    """TRIES sizes between both, in equal ratios."""
    return tuple(sorted({round(low * (high / low) ** (k / (TRIES + 1))) for k in range(1, TRIES + 1)}))


def grid(most: int) -> tuple[int, ...]:
    """1 to `most` in about equal ratios."""
    return tuple(sorted({round(most ** (k / (POINTS - 1))) for k in range(POINTS)}))


def smallest_n(sizes: Sequence[int], found: Sequence[float], wanted: float, order: int, more: MeanNorm) -> Needed:
    """From the biases `found` at `sizes`, asking for `more` where they cross `wanted`."""
    above = [k for k, bias in enumerate(found) if bias > wanted]
    if not above:
        return Needed(sizes[0], False)
    if above[-1] == len(sizes) - 1:
        return _beyond(sizes[-1], found[-1], wanted, order)
    points = list(zip(sizes, found, strict=True))[above[-1] : above[-1] + 2]
    for _ in range(ROUNDS):
        low, high = _crossing(points, wanted)
        tries = [n for n in between(low[0], high[0]) if low[0] < n < high[0]]
        points = [low, *zip(tries, more(tries) if tries else [], strict=True), high]
    return Needed(_crossing(points, wanted)[1][0], False)


def _crossing(points: Sequence[tuple[int, float]], wanted: float) -> tuple[tuple[int, float], tuple[int, float]]:
    """The last point above the wanted bias, and the next one, which is below."""
    last = max(k for k, (_, bias) in enumerate(points) if bias > wanted)
    return points[last], points[last + 1]


def _beyond(n: int, bias: float, wanted: float, order: int) -> Needed:
    """bias ∝ n^−order from the last size on."""
    log_n = math.log(n) + (math.log(bias) - math.log(wanted)) / order if wanted > 0 else math.inf
    return Needed(math.ceil(math.exp(log_n)) if log_n < math.log(LARGEST) else None, True)
