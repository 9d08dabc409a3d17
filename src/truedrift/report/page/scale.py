"""An axis: where a value stands on it, and which ticks it has. Linear ticks are 1, 2 or 5 times a power of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOGARITHMIC_FROM = 20.0
"""Largest over smallest value."""
MOST_TICKS = 8
"""Of a logarithmic axis."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """From `low` at 0 to `high` at 1."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """The place of a value."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(values: Sequence[float], *, from_zero: bool = False, ticks: int = 5) -> Scale:
    """Around all values, to the next ticks beyond them."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    if low == high:  # one value, in the middle, or 0 at the bottom
        room = abs(low) or 1.0
        low, high = (0.0, 1.0) if from_zero else (low - room / 2, low + room / 2)
    step = _step((high - low) / ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = tuple(step * k for k in range(first, last + 1))
    return Scale(low=marks[0], high=marks[-1], logarithmic=False, ticks=marks)


def progress(values: Sequence[float]) -> Scale:
    """From 0 to the largest value, with no room beyond it."""
    whole = linear([*values, 0.0], ticks=4)
    high = max(values, default=0.0) or whole.high
    return Scale(low=0.0, high=high, logarithmic=False, ticks=tuple(tick for tick in whole.ticks if 0 <= tick <= high))


def fitting(values: Sequence[float], *, from_zero: bool = False) -> Scale:
    """Logarithmic where positive values reach over more than a factor of LOGARITHMIC_FROM, unless 0 is to be seen."""
    if not from_zero and values and min(values) > 0 and max(values) / min(values) > LOGARITHMIC_FROM:
        return logarithmic(values)
    return linear(values, from_zero=from_zero)


def logarithmic(values: Sequence[float]) -> Scale:
    """Around all values, which are positive; ticks at powers of ten, and 2 and 5 times them where they are few."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(decades) <= 3 else (1,)
    candidates = [factor * 10.0**decade for decade in decades for factor in factors]
    inside = tuple(tick for tick in candidates if low / 1.2 <= tick <= high * 1.2)
    inside = inside[:: -(-len(inside) // MOST_TICKS) or 1]
    return Scale(low=low / 1.2, high=high * 1.2, logarithmic=True, ticks=inside)


def _step(least: float) -> float:
    """The smallest of 1, 2 and 5 times powers of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def short(value: float) -> str:
    """A tick's label: 0.25, 1,200, 24k, 6.2M, 10⁻⁵."""
    size = abs(value)
    if size < 1e-12:
        return "0"
    if size < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-").replace("-", "−")
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            return f"{value / (1e3 if letter == 'k' else unit):.6g}{letter}".replace("-", "−")
    return f"{value:,.6g}".replace("-", "−")
