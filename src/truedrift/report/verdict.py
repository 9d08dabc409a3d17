"""Paired differences as sentences: lower, higher or neither, and how much the number of comparisons makes of it."""

from __future__ import annotations

from collections.abc import Sequence

from truedrift.report.cell import shown
from truedrift.report.over_seeds import CONFIDENCE, Paired

PERCENT = f"{CONFIDENCE * 100:.0f} %"


def sentence(found: Paired, name: str, base: str, spec: str, *, lower: str = "lower", unit: str = "") -> str:
    """Which of both is lower and by how much, with the interval and how many pairs."""
    if found.mean is None:
        return f"no seed has both {name} and {base}"
    ahead = f"{name if found.mean < 0 else base} {lower} by {shown(abs(found.mean), spec)}{unit}"
    if found.low is None or found.high is None:
        said = ahead if found.mean else "no difference"
        return f"{said} in a single pair of seeds, which has no interval"
    if not found.significant:
        return (
            f"no significant difference ({name} − {base} is {shown(found.mean, spec)}{unit}, {PERCENT} interval "
            f"{shown(found.low, spec)} to {shown(found.high, spec)}, {found.pairs} pairs)"
        )
    near, far = (shown(limit, spec) for limit in sorted((abs(found.low), abs(found.high))))
    return f"{ahead} ({PERCENT} interval {near} to {far}, {found.pairs} pairs)"


def comparisons_note(intervals: Sequence[Paired]) -> str:
    """How many intervals are shown, and what that means; or why there is none."""
    count = sum(found.low is not None for found in intervals)
    if not count:
        return "No two pairs of seeds anywhere: there is no interval, and no difference here is significant."
    return (
        f"In brackets: {PERCENT} t intervals of paired differences (the same seed on both sides). Comparisons: "
        f"{count}, not corrected for their number; if nothing differed, {(1 - CONFIDENCE) * count:.2g} of these "
        "intervals would be expected to exclude 0."
    )
