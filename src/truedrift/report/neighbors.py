"""Nearest training images of samples, as text and figures.

The command `truedrift evaluate` writes them to the run directory, and the page of a run shows them.
"""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truedrift.axes import Tensor
from truedrift.evaluation.neighbors import Neighbors, NeighborsProtocol, NeighborsRecord
from truedrift.report.figure import ABC, INK, MUTED, show_text_as_it_is, style_axes
from truedrift.report.table import align_columns, format_number

NEIGHBORS = "neighbors.png"
"""File of the samples beside their nearest training images."""
NEIGHBOR_DISTANCES = "neighbor_distances.png"
"""File of the distributions of distances."""

WIDTH = 6.6  # inches


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
    show_text_as_it_is(figure)
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
