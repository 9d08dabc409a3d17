"""Names of runs and distances in a figure: any letters may come, and what the font lacks is a question mark."""

from __future__ import annotations

from functools import cache
from textwrap import wrap

from matplotlib.font_manager import findfont, get_font

FONT = "STIXGeneral"
LONGEST = 48
"""Letters of a name that are shown."""
LINE = 34
"""Letters that fit above a panel."""


@cache
def _letters() -> frozenset[int]:
    """Of the font."""
    return frozenset(get_font(findfont(FONT)).get_charmap())


def drawable(text: str) -> str:
    """The text with letters of the font alone."""
    return "".join(letter if letter.isprintable() and ord(letter) in _letters() else "?" for letter in text)


def shortened(name: str) -> str:
    """Both ends of a long name."""
    shown, half = drawable(name), (LONGEST - 1) // 2
    return shown if len(shown) <= LONGEST else f"{shown[:half]}…{shown[-half:]}"


def lines(title: str) -> str:
    """A long title in several lines, at most three."""
    return "\n".join(wrap(drawable(title), LINE, max_lines=3, placeholder=" …"))
