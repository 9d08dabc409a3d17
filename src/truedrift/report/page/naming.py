"""Names and counts as a person writes them: run 2 before run 10, one run, two runs."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"([0-9]{1,18})")


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key to sort by, in which numbers inside of names count as numbers."""
    parts = [*_DIGITS.split(name), "-1"]
    return tuple((text, int(digits)) for text, digits in zip(parts[::2], parts[1::2], strict=True))


def counted(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
