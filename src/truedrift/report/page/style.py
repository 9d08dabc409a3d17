"""The style sheet: the palette's colors as custom properties, light and dark, and style.css after them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from truedrift.report.palette import ABC, ABC2, MUTED, STANDARD, STRATIFIED, TARGET

COLORS = {
    "abc": (ABC, "#5cb3f5"),
    "standard": (STANDARD, "#ff8781"),
    "abc2": (ABC2, "#c99be6"),
    "stratified": (STRATIFIED, "#f2b14c"),
    "target": (TARGET, "#74c46f"),
    "muted": (MUTED, "#a3abb5"),
}
"""Class of a line → its color on white, and the same hue on black."""


@cache
def sheet() -> str:
    """All of it."""
    rules = "\n".join(f".{name} {{ --color: var(--{name}); }}" for name in COLORS)
    css = files("truedrift.report.page").joinpath("style.css").read_text(encoding="utf-8")
    return f"{_root(0)}\n@media screen and (prefers-color-scheme: dark) {{ {_root(1)} }}\n{rules}\n{css}"


def _root(which: int) -> str:
    return ":root { " + " ".join(f"--{name}: {colors[which]};" for name, colors in COLORS.items()) + " }"
