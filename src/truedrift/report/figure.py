"""What all figures share: the paper's colors and markers, the style of axes, and writing a figure to files."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import NullLocator

from truedrift.storage import write_atomically

TARGET = "#017100"
"""T*, a diamond."""

STANDARD = "#D64541"
"""T_n, a circle."""

ABC = "#0077CC"
"""T_n^ABC, a square."""

ABC2 = "#7A3E9D"
"""T_n of ABC-2, a triangle; ours."""

INK = "#222222"
MUTED = "#8A929C"
CLOUD = "#B4BECA"
HALO = "#EEF1F5"
FRAME = "#D5DAE0"

STRATIFIED = "#D98200"
"""Stratified ABC, a triangle, dashed; ours."""

POSITIVE = "#1B8A7A"
"""ABC on the positive side alone, a triangle downward."""

NEGATIVE = "#A8631B"
"""ABC on the negative side alone, a diamond."""

DPI = 300
"""Pixels per inch of figures in PNG files."""

LOOKS = {
    "standard": ("standard", STANDARD, "o"),
    "abc": ("ABC", ABC, "s"),
    "abc2": ("ABC-2", ABC2, "^"),
}
"""Estimator → display name, color and marker."""


def style_axes(axes: Axes, *, across: str, up: str = "", title: str = "", size: float = 8.5) -> None:
    """Set the labels, the title, the grid and the spines."""
    axes.set_xlabel(across, fontsize=size, labelpad=2)
    axes.set_ylabel(up, fontsize=size, labelpad=3)
    axes.set_title(title, y=1.0, fontsize=size, color=INK, pad=4)  # a fixed y: matplotlib need not search for it
    axes.tick_params(which="both", labelsize=size - 1, color=FRAME)
    axes.grid(color=FRAME, linewidth=0.4)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.6)


def ticks_at(axes: Axes, places: Sequence[float], labels: Sequence[str]) -> None:
    """Make the horizontal axis logarithmic, with ticks at `places` only."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, labels)
    axes.xaxis.set_minor_locator(NullLocator())


def legend_above(figure: Figure, handles: Sequence[Any], *, columns: int, **look: Any) -> None:
    """Put one legend of these labeled handles above all panels."""
    figure.legend(handles=handles, loc="upper center", ncols=columns, frameon=False, **({"fontsize": 8.5} | look))


def set_paper_fonts(figure: Figure) -> Figure:
    """Set the fonts of the paper, and return the figure."""
    for text in figure.findobj(Text):
        text.set(family="STIXGeneral", math_fontfamily="stix")
    return figure


def show_text_as_it_is(figure: Figure) -> None:
    """Turn formulas off: a name from a file may contain a dollar sign."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, completely or not at all.

    Args:
        figure: The figure.
        path: The file. Its directory must exist.

    Returns:
        The same path.
    """
    content = io.BytesIO()
    set_paper_fonts(figure).savefig(content, format="png", dpi=220, facecolor="white")
    write_atomically(path, content.getvalue(), sync=False)
    return path


def fix_layout(figure: Figure) -> None:
    """Compute the layout of a figure, which is slow, once for all of its files."""
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(DPI)
        engine.execute(figure)
        figure.set_layout_engine(None)


def save_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write the figure as PNG and PDF, each completely or not at all; return both paths."""
    fix_layout(set_paper_fonts(figure))
    forms: dict[str, dict[str, Any]] = {"png": {"dpi": DPI}, "pdf": {"metadata": {"CreationDate": None}}}
    for kind, options in forms.items():
        content = io.BytesIO()
        figure.savefig(content, format=kind, **options)
        write_atomically(directory / f"{name}.{kind}", content.getvalue(), sync=False)
    return [directory / f"{name}.{kind}" for kind in forms]
