"""Words as LaTeX: what would be a command is escaped, and letters outside ASCII become commands."""

from __future__ import annotations

import re

_ASCII = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
_BEYOND = {
    "τ′": r"$\tau'$",
    "τ": r"$\tau$",
    "−": "$-$",
    "µ": r"\textmu{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "→": r"$\rightarrow$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "β₁": r"$\beta_1$",
    "β₂": r"$\beta_2$",
    "¼": r"\textonequarter{}",
    "½": r"\textonehalf{}",
    "¾": r"\textthreequarters{}",
    "–": "--",
    "‖": r"$\|$",
    "…": r"\ldots{}",
}
_KNOWN = _ASCII | _BEYOND
_PATTERN = re.compile("|".join(map(re.escape, sorted(_KNOWN, key=len, reverse=True))))


def escape(text: str) -> str:
    """The text as LaTeX that prints it."""
    return _PATTERN.sub(lambda found: _KNOWN[found[0]], text)
