"""A panel's frame, the same in every figure with axes: light grid and spines, small ticks, a letter."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from truedrift.report.palette import FRAME, INK


def framed(axes: Axes, *, across: str, up: str = "", title: str = "", size: float = 8.5) -> None:
    """Labels, grid and spines."""
    axes.set_xlabel(across, fontsize=size, labelpad=2)
    axes.set_ylabel(up, fontsize=size, labelpad=3)
    axes.set_title(title, fontsize=size, color=INK, pad=4)
    axes.tick_params(which="both", labelsize=size - 1, color=FRAME)
    axes.grid(color=FRAME, linewidth=0.4)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.6)


def ticks_at(axes: Axes, places: Sequence[float], labels: Sequence[str]) -> None:
    """These ticks across and no others, on a logarithmic axis."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, labels)
    axes.xaxis.set_minor_locator(NullLocator())
