"""`fig:illustration`: T* (green diamond), T_n (red circle) and T_n^ABC (blue square) from n references (rings).

The panel is draw 0. The inset shows the centroids averaged over all draws, magnified around T*: what a single draw,
good or bad, cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from truedrift.records import Illustration, Point
from truedrift.report.item import save_figure
from truedrift.report.palette import ABC, CLOUD, FRAME, HALO, INK, MUTED, STANDARD, TARGET

NAME = "fig_illustration"
FIGURE_INCHES = (3.3, 3.25)  # half of a text width
PANEL = (0.01, 0.105, 0.98, 0.765)
PANEL_INCHES = (FIGURE_INCHES[0] * PANEL[2], FIGURE_INCHES[1] * PANEL[3])


def save(record: Illustration, directory: Path) -> list[Path]:
    """Write the figure as PNG and PDF."""
    return save_figure(draw(record), directory, NAME)


def summary(record: Illustration) -> str:
    """The figure's numbers as text."""
    return "\n".join(
        (
            f"fig:illustration: three Gaussian clusters, n = {record.n}, τ = {record.tau:g}, "
            f"draw 0 of {record.draws:,} with seed {record.provenance.seed}",
            "",
            f"{'':32}{'standard':>10}{'ABC':>10}",
            _row("distance to T* in this draw", record.distance_standard, record.distance_abc),
            _row("root mean square distance", record.rms_standard, record.rms_abc),
            _row("bias: norm of the mean error", record.bias_standard, record.bias_abc),
            _row("  its Monte-Carlo noise", record.noise_standard, record.noise_abc),
            "",
            *verdicts(record),
            f"The draws are from a fixed pool of {record.pool_points:,} points, whose centroid is T*.",
        )
    )


def verdicts(record: Illustration) -> list[str]:
    """In how many draws ABC is the nearer one."""
    if record.n == 1:
        return ["At n = 1 the correction changes nothing."]
    here = "in this one it is" if record.distance_abc < record.distance_standard else "in this one it is not"
    return [f"ABC is nearer to T* in {_share(record)} of the draws; {here}."]


def _row(what: str, *values: float | None) -> str:
    return f"{what:32}" + "".join("unknown".rjust(10) if value is None else f"{value:10.4f}" for value in values)


def _share(record: Illustration) -> str:
    share = record.share_nearer
    error = f" ± {math.sqrt(share * (1 - share) / record.draws):.2%}" if record.draws > 1 else ""
    return f"{share:.2%}{error}"


def draw(record: Illustration) -> Figure:
    """The figure, made for half of a text width."""
    figure = Figure(figsize=FIGURE_INCHES)
    axes = figure.add_axes(PANEL)
    _clusters(axes, record)
    _query_and_references(axes, record)
    _centroids(axes, record.T_star, record.T_standard, record.T_abc, size=40)
    _frame(axes, record)
    _mean_inset(axes, record)
    _legend(figure, axes)
    _caption(figure, record)
    return figure


def _clusters(axes: Axes, record: Illustration) -> None:
    for mode in record.modes:
        axes.add_patch(Circle(mode, 2.5 * record.std, facecolor=HALO, edgecolor="none", zorder=0))
    _marks(axes, record.cloud, s=3, color=CLOUD, alpha=0.7, linewidths=0, zorder=1)
    a, b = (sum(axis) / len(record.modes) for axis in zip(*record.modes, strict=True))
    _marks(axes, [(a, b)], s=30, marker="+", color=MUTED, linewidths=1, zorder=2)
    place: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "va": "bottom"}
    axes.annotate("global mean", (a, b), fontsize=7, color=MUTED, zorder=2, **place)


def _query_and_references(axes: Axes, record: Illustration) -> None:
    rings = {"facecolors": "none", "edgecolors": "black", "linewidths": 1.1, "s": min(36, 4 + 2000 / record.n)}
    _marks(axes, record.references, zorder=3, label=f"references ($n={record.n}$)", **rings)
    _marks(axes, [record.query], s=75, marker="*", color=INK, linewidths=0, zorder=4, label="query $x$")


def _centroids(axes: Axes, T_star: Point, T_standard: Point, T_abc: Point, *, size: float) -> None:
    """The three centroids, and the way from the standard one to the corrected one."""
    head = "-|>,head_width=0.13,head_length=0.25"
    arrow = {"arrowstyle": head, "color": INK, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 3}
    axes.annotate("", T_abc, T_standard, arrowprops=arrow, zorder=5)
    edge = {"edgecolors": "white", "linewidths": 0.7}
    _marks(axes, [T_star], s=size, marker="D", color=TARGET, zorder=6, label="target $T^*$", **edge)
    _marks(axes, [T_standard], s=size * 1.1, marker="o", color=STANDARD, zorder=7, label="standard $T_n$", **edge)
    corrected = r"corrected $T_n^{\mathrm{ABC}}$"
    _marks(axes, [T_abc], s=size, marker="s", color=ABC, zorder=8, label=corrected, **edge)


def _marks(axes: Axes, points: Iterable[Point], **look: Any) -> None:
    horizontal, vertical = zip(*points, strict=True)
    axes.scatter(horizontal, vertical, **look)


def _frame(axes: Axes, record: Illustration) -> None:
    margin = 2.8 * record.std
    corners = [(a + side * margin, b + side * margin) for a, b in record.modes for side in (-1, 1)]
    _window(axes, [*corners, *record.references], PANEL_INCHES, margin=0.05)


def _mean_inset(axes: Axes, record: Illustration) -> None:
    left, bottom, width, height = 0.02, 0.025, 0.36, 0.2
    inset = axes.inset_axes((left, bottom, width, height), zorder=9)
    shown = [record.T_star, record.mean_standard, record.mean_abc]
    margin = 0.6 * max(record.bias_standard, record.bias_abc, 1e-3)
    _window(inset, shown, (width * PANEL_INCHES[0], height * PANEL_INCHES[1]), margin=margin)
    _centroids(inset, *shown, size=26)
    inset.set_title(f"mean of {record.draws:,} draws", fontsize=7.5, color=INK, pad=2)


def _window(axes: Axes, points: list[Point], inches: tuple[float, float], *, margin: float) -> None:
    """Limits around the points that fill the panel at equal scales."""
    low, high = ([f(axis) for axis in zip(*points, strict=True)] for f in (min, max))
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    scale = max(((b - a) / 2 + margin) / size for a, b, size in zip(low, high, inches, strict=True))
    axes.set_xlim(middle[0] - scale * inches[0], middle[0] + scale * inches[0])
    axes.set_ylim(middle[1] - scale * inches[1], middle[1] + scale * inches[1])
    axes.set_aspect("equal")
    _bare(axes)


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.6)


def _legend(figure: Figure, axes: Axes) -> None:
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    references, query, target, standard, abc = handles
    by_column = [target, references, standard, query, abc]  # T*, T_n, T_n^ABC make the first row
    figure.legend(
        [handles[label] for label in by_column],
        by_column,
        loc="upper center",
        ncols=3,
        frameon=False,
        fontsize=8,
        handletextpad=0.2,
        columnspacing=1.2,
        borderaxespad=0.1,
    )


def _caption(figure: Figure, record: Illustration) -> None:
    lines = (
        f"Distance to $T^*$ in this draw: {record.distance_standard:.3f}, with ABC {record.distance_abc:.3f}.",
        f"ABC is nearer in {record.share_nearer:.0%} of the draws; "
        f"bias {record.bias_standard:.3f} → {record.bias_abc:.3f}.",
    )
    figure.text(0.5, 0.008, "\n".join(lines), ha="center", va="bottom", fontsize=7.5, color=INK, linespacing=1.25)
