"""Evaluations as text, tables and figures: guidance strengths, averages of the weights, and nearest training images.

The command `truedrift evaluate` writes them to the run directory, and the page of a run shows them.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from truedrift.axes import Tensor
from truedrift.evaluation.metrics import split_count
from truedrift.evaluation.neighbors import Neighbors, NeighborsProtocol, NeighborsRecord
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.report.figure import ABC, INK, MUTED, STANDARD, TARGET, set_paper_fonts, style_axes
from truedrift.report.table import MeanCell, Number, Row, Table, align_columns, format_number
from truedrift.storage import write_atomically

STRENGTHS = "strengths"
"""Name of the table and the figure of a sweep, without suffix."""
NEIGHBORS = "neighbors.png"
"""File of the samples beside their nearest training images."""
NEIGHBOR_DISTANCES = "neighbor_distances.png"
"""File of the distributions of distances."""

WIDTH = 6.6  # inches
DPI = 220
Evaluated = tuple[Metrics, Protocol]
NamedRow = tuple[str, Evaluated]
"""What a row of a table is about, such as a strength, and its evaluation."""


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, completely or not at all.

    Args:
        figure: The figure.
        path: The file. Its directory must exist.

    Returns:
        The same path.
    """
    content = io.BytesIO()
    set_paper_fonts(figure).savefig(content, format="png", dpi=DPI, facecolor="white")
    write_atomically(path, content.getvalue(), sync=False)
    return path


def _show_text_as_it_is(figure: Figure) -> None:
    """Turn formulas off: a name from a file may contain a dollar sign."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)


# Metrics side by side


def _metrics_table(
    rows: Sequence[NamedRow], best: Evaluated, *, column: str, caption: str, label: str, notes: Sequence[str]
) -> Table:
    """Return a table of metrics, with the distance of `best` in bold; `column` is the header of the names.

    A score that is not defined has no column.
    """
    protocol = best[1]
    has_score = any(metrics.inception_score is not None for _, (metrics, _) in rows)

    def row(name: str, each: Evaluated) -> Row:
        metrics = each[0]
        deviation = metrics.inception_score_deviation if split_count(protocol.samples) > 1 else None
        score = MeanCell(metrics.inception_score, deviation, None, ".3g")
        return [
            name,
            Number(metrics.fid, ".4g", bold=each is best),
            MeanCell(metrics.kid, metrics.kid_deviation, None, ".3g"),
            Number(metrics.precision, ".3f"),
            Number(metrics.recall, ".3f"),
            *([score] if has_score else []),
        ]

    header = (column, protocol.distance_name, "KID", "precision", "recall", *(["Inception Score"] if has_score else []))
    groups = [[row(*each) for each in rows]]
    return Table(caption=caption, label=label, header=header, groups=groups, notes=notes)


def _describe_best(rows: Sequence[NamedRow], best: Evaluated, noun: str) -> str:
    """State which of two or more rows in increasing order is the best; `noun` is what they are, such as strength."""
    names = [name for name, _ in rows]
    distance, fid = best[1].distance_name, best[0].fid
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    if len({metrics.fid for _, (metrics, _) in rows}) == 1:
        return f"{distance} is {fid:.4g} at all {noun}s: {listed}."
    position = next(k for k, (_, each) in enumerate(rows) if each is best)
    more = ", the largest one, so larger ones may be better" if position == len(rows) - 1 else ""
    return f"Of the {noun}s {listed}, {distance} is smallest ({fid:.4g}) at {names[position]}{more}."


# Strengths


def best_strength(sweep: Sequence[Evaluated]) -> Evaluated:
    """Return the evaluation with the smallest distance, of those that are equal the first."""
    return min(sweep, key=lambda each: each[0].fid)


def describe_best_strength(sweep: Sequence[Evaluated]) -> str:
    """State the best strength of a sweep in one sentence.

    Args:
        sweep: Evaluations that differ in the strength only, two or more.

    Returns:
        The sentence. It says so if all distances are equal, or if the best strength is the last one of the sweep.
    """
    return _describe_best(_by_strength(sweep), best_strength(sweep), "strength")


def _by_strength(sweep: Sequence[Evaluated]) -> list[NamedRow]:
    """Return the evaluations in increasing order, each with its strength."""
    return [(f"{each[1].strength:g}", each) for each in sorted(sweep, key=lambda each: each[1].strength)]


def strengths_table(sweep: Sequence[Evaluated]) -> Table:
    """Return one row per strength, with the smallest distance in bold.

    Args:
        sweep: Evaluations that differ in the strength only.

    Returns:
        The table, with the protocol as a note. A metric that is not defined has no column.
    """
    best = best_strength(sweep)
    protocol = best[1]
    return _metrics_table(
        _by_strength(sweep),
        best,
        column="strength",
        caption="Metrics by guidance strength. All strengths have the same noise and labels.",
        label="tab:strengths",
        notes=[
            describe_best_strength(sweep),
            f"{protocol.samples:,} samples with {protocol.weights} weights and seed {protocol.seed}, against "
            f"{protocol.reference_count:,} of {protocol.reference} ({protocol.split}).",
        ],
    )


def strengths_figure(sweep: Sequence[Evaluated]) -> Figure:
    """Plot the distance over the strength, and beside it precision and recall if they are defined.

    Args:
        sweep: Evaluations that differ in the strength only.

    Returns:
        The figure. A circle marks the smallest distance.
    """
    ordered = sorted(sweep, key=lambda each: each[1].strength)
    strengths = [protocol.strength for _, protocol in ordered]
    best_metrics, best_protocol = best_strength(sweep)
    shares = {"precision": (TARGET, "s"), "recall": (STANDARD, "^")}
    has_shares = any(metrics.precision is not None for metrics, _ in ordered)
    figure = Figure(figsize=(WIDTH, 2.2), layout="constrained")
    panels: Any = figure.subplots(1, 2, squeeze=False)[0]
    # Distance.
    distances = [metrics.fid for metrics, _ in ordered]
    panels[0].plot(strengths, distances, color=ABC, marker="o", markersize=3.6, linewidth=1.2)
    panels[0].plot(
        [best_protocol.strength],
        [best_metrics.fid],
        color=INK,
        marker="o",
        markersize=8,
        fillstyle="none",
        linestyle="none",
        label=f"best: {best_metrics.fid:.4g} at {best_protocol.strength:g}",
    )
    style_axes(panels[0], across="guidance strength", title=f"{best_protocol.distance_name}, smaller is better")
    panels[0].margins(y=0.15)
    panels[0].legend(frameon=False, fontsize=8)
    _show_text_as_it_is(figure)
    # Precision and recall.
    if not has_shares:
        figure.delaxes(panels[1])
        return figure
    for name, (color, marker) in shares.items():
        values = [getattr(metrics, name) for metrics, _ in ordered]
        panels[1].plot(strengths, values, color=color, marker=marker, markersize=3.6, linewidth=1.2, label=name)
    style_axes(panels[1], across="guidance strength", title="Precision and recall, larger is better")
    panels[1].set_ylim(-0.03, 1.03)
    panels[1].legend(frameon=False, fontsize=8)
    return figure


# Averages


def averages_table(averages: Mapping[float, Evaluated], step: int | None) -> Table:
    """Return one row per average of the weights, with the smallest distance in bold.

    Args:
        averages: Decay → evaluation, two or more that differ in the average only. Decay 0 is no average.
        step: The step of the checkpoint.

    Returns:
        The table, with the protocol as a note. A metric that is not defined has no column.
    """
    rows = [(f"{decay!r}" if decay else "0", averages[decay]) for decay in sorted(averages)]
    best = min(averages.values(), key=lambda each: each[0].fid)
    protocol = best[1]
    when = "" if step is None else f" at step {step:,}"
    return _metrics_table(
        rows,
        best,
        column="decay",
        caption=f"Metrics by decay of the averaged weights{when}. All averages have the same noise and labels.",
        label="tab:averages",
        notes=[
            _describe_best(rows, best, "decay"),
            *(["Decay 0: the weights of the step, without an average."] if 0 in averages else []),
            f"{protocol.samples:,} samples with strength {protocol.strength:g} and seed {protocol.seed}, against "
            f"{protocol.reference_count:,} of {protocol.reference} ({protocol.split}).",
        ],
    )


# Nearest training images


def describe_neighbors(record: NeighborsRecord) -> str:
    """Conclude in one sentence from the numbers of a record.

    Args:
        record: The record.

    Returns:
        Whether more samples are close to a training image than chance explains, with the numbers that say so.
    """
    protocol = record.protocol
    numbers = (
        f"{record.close} of {protocol.samples:,} samples ({record.share:.1%}) are as close to a training image as the "
        f"closest {record.close_held_out} of {protocol.held_out:,} held-out images "
        f"({record.close_held_out / protocol.held_out:.1%})"
    )
    if record.is_suspicious:
        return (
            f"Samples may be copies: {numbers}, and chance gives so many with probability "
            f"{_format_probability(record.p_value)}."
        )
    return f"No sign of copies: {numbers}, and chance gives at least so many with probability {record.p_value:.2g}."


def _format_probability(p: float) -> str:
    """Format a p-value; the digits of a tiny one mean nothing."""
    return "below 1e-6" if p < 1e-6 else f"{p:.1g}"


def describe_neighbors_protocol(protocol: NeighborsProtocol) -> str:
    """Describe in one line how distances were computed."""
    train = "all" if protocol.compared == protocol.train else f"{protocol.compared:,} of"
    source = "the test split" if protocol.held_out_split == "test" else "the training images, as there is no test split"
    return (
        f"Distances in {protocol.dimensions} features of {protocol.extractor} ({protocol.extractor_sha256[:12]}), "
        f"{'not ' if protocol.independent else ''}among those that the run was trained on; {train} "
        f"{protocol.train:,} training images of {protocol.data}; {protocol.held_out:,} held-out images from {source}; "
        f"{protocol.samples:,} samples, "
        f"seed {protocol.seed}, strength {protocol.strength:g}, {protocol.weights} weights"
    )


def neighbors_summary(record: NeighborsRecord) -> str:
    """Return the distances, the protocol and the conclusion as text for a terminal."""
    protocol = record.protocol

    def number(value: float) -> str:
        return format_number(value, ".4g")

    rows = [
        ("distance to the nearest training image", f"{protocol.samples:,} samples", f"{protocol.held_out:,} held-out"),
        ("smallest", number(record.quantiles[0]), number(record.held_out_quantiles[0])),
        ("median", number(record.median), number(record.held_out_median)),
        (
            f"at most {number(record.threshold)}, the 1st percentile of held-out",
            f"{record.close} ({record.share:.1%})",
            f"{record.close_held_out} ({record.close_held_out / protocol.held_out:.1%})",
        ),
    ]
    train = f"{protocol.train:,} training images"
    if protocol.compared < protocol.train:
        train = f"{protocol.compared:,} of {train}: a random part, and the nearest in pixels of all of them"
    held_out = f"{protocol.held_out:,} held-out images of the test split"
    if protocol.held_out_split == "train":
        held_out = (
            f"{protocol.held_out:,} images held out of the comparison; there is no test split, so the run saw them"
        )
    return "\n".join(
        [
            *align_columns(rows),
            f"features: {protocol.extractor}, sha256 {protocol.extractor_sha256[:12]}, {protocol.dimensions} "
            f"dimensions; the run was {'not ' if protocol.independent else ''}trained on them",
            f"data:     {protocol.data}, {train}; {held_out}",
            f"samples:  {protocol.samples}, labels balanced, seed {protocol.seed}, strength {protocol.strength:g}, "
            f"{protocol.weights} weights",
            f"time:     {record.seconds:.0f} s",
            describe_neighbors(record),
        ]
    )


def neighbor_distances_figure(record: NeighborsRecord) -> Figure:
    """Plot both distributions of distances: the share of images that are at most that far from a training image.

    Args:
        record: The record.

    Returns:
        The figure. A copy is at distance 0. The dotted line is the 1st percentile of held-out images.
    """
    figure = Figure(figsize=(WIDTH / 2 + 0.8, 2.4), layout="constrained")
    axes: Axes = figure.subplots()
    sides = ((record.held_out_quantiles, MUTED, "held-out images"), (record.quantiles, ABC, "samples"))
    for quantiles, color, name in sides:
        shares = [k / max(1, len(quantiles) - 1) for k in range(len(quantiles))]
        axes.plot(quantiles, shares, color=color, linewidth=1.4, label=name)
    axes.axvline(record.threshold, color=INK, linestyle=":", linewidth=1, label="1st percentile of held-out")
    style_axes(
        axes,
        across=f"distance to the nearest training image ({record.protocol.extractor})",
        up="share at most that far",
    )
    axes.set_xlim(left=-0.02 * max(record.quantiles[-1], record.held_out_quantiles[-1]))  # copies are at 0
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False, fontsize=7.5, loc="lower right")
    _show_text_as_it_is(figure)
    return figure


BLOCKS, ROWS = 3, 7
"""Samples with their neighbors: side by side, and below each other, in each half of the picture."""
SMALLEST_SIDE = 32
FRAME, SPACE = 2, 8  # pixels


def neighbors_figure(generated: Tensor, train: Tensor, found: Neighbors) -> Figure:
    """Draw samples beside their nearest training images: the first samples, and those closest to a training image.

    Args:
        generated: Samples as bytes [N, C, H, W].
        train: The training images as bytes.
        found: Their neighbors.

    Returns:
        The figure. Samples have a blue frame, and their nearest training images are to the right, the nearest first.
    """
    count = min(BLOCKS * ROWS, len(generated))
    closest = found.distances[:, 0].argsort(stable=True)[:count]
    halves = {
        "The first samples (blue frame), each with its nearest training images": torch.arange(count),
        "The samples that are closest to a training image, the closest first": closest,
    }
    pictures = [_arrange_blocks(generated[ids], train[found.ids[ids]]) for ids in halves.values()]
    height, width = pictures[0].shape[:2]
    figure = Figure(figsize=(WIDTH, 2 * (0.3 + WIDTH * height / width)), layout="constrained")
    for axes, (title, picture) in zip(figure.subplots(2, 1), zip(halves, pictures, strict=True), strict=True):
        axes.imshow(picture.numpy(), interpolation="nearest")
        axes.set_axis_off()
        axes.set_title(title, fontsize=8.5, color=INK, pad=4)
    return figure


def _arrange_blocks(samples: Tensor, neighbors: Tensor) -> Tensor:
    """Arrange samples [N, C, H, W] beside their neighbors [N, k, C, H, W] as one picture [H', W', 3]."""
    images = torch.cat((samples.unsqueeze(1), neighbors), 1)
    images = images.expand(-1, -1, 3, -1, -1)
    factor = max(1, -(-SMALLEST_SIDE // max(images.shape[-2:])))
    images = images.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
    H, W = images.shape[-2:]
    cell_height, cell_width = H + 2 * FRAME, W + 2 * FRAME
    block_width = images.shape[1] * cell_width + SPACE
    rows, columns = -(-len(images) // BLOCKS), min(BLOCKS, len(images))
    height = rows * (cell_height + FRAME) - FRAME
    picture = torch.full((3, height, columns * block_width - SPACE), 255, dtype=torch.uint8)
    frame = torch.tensor([int(ABC[k : k + 2], 16) for k in (1, 3, 5)], dtype=torch.uint8)[:, None, None]
    for number, block in enumerate(images):
        top, left = number // BLOCKS * (cell_height + FRAME), number % BLOCKS * block_width
        picture[:, top : top + cell_height, left : left + cell_width] = frame
        for position, image in enumerate(block):
            x = left + position * cell_width + FRAME
            picture[:, top + FRAME : top + FRAME + H, x : x + W] = image
    return picture.permute(1, 2, 0).contiguous()
