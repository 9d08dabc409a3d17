"""An item of the report: a kind of record, and how it becomes files and text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text


@dataclass(frozen=True)
class Item:
    """`save(record, directory)` writes figures and tables and returns their paths; `summary(record)` is text."""

    label: str
    kind: type
    save: Callable[[Any, Path], list[Path]]
    summary: Callable[[Any], str]


def save_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write the figure as PNG and PDF."""
    for text in figure.findobj(Text):
        text.set(family="STIXGeneral", math_fontfamily="stix")
    png = directory / f"{name}.png"
    figure.savefig(png, dpi=300)
    figure.savefig(png.with_suffix(".pdf"), metadata={"CreationDate": None})
    return [png, png.with_suffix(".pdf")]
