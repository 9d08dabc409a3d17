"""Evaluations that differ in one quantity, as tables and figures: guidance strength, step, or average of the weights.

The command `truedrift evaluate` writes them to the run directory, and the page of a run shows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.figure import Figure

from truedrift.evaluation.metrics import split_count
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.report.figure import ABC, INK, STANDARD, TARGET, show_text_as_it_is, style_axes
from truedrift.report.screens import describe_few_samples
from truedrift.report.table import MeanCell, Number, Row, Table

Quantity = Literal["strength", "step", "decay"]
CAPTIONS: Mapping[Quantity, str] = {
    "strength": "Metrics by guidance strength",
    "step": "Metrics by training step",
    "decay": "Metrics by decay of the averaged weights",
}
AXES: Mapping[Quantity, str] = {"strength": "guidance strength", "step": "training step", "decay": "decay"}
WIDTH = 6.6  # inches


@dataclass(frozen=True)
class Sweep:
    """Two or more evaluations that differ in one quantity only, so that noise and labels of their samples are equal."""

    quantity: Quantity
    evaluated: Mapping[float, tuple[Metrics, Protocol]]
    """Value of the quantity → evaluation. The decay 0 is no average."""
    step: int | None = None
    """Step of the checkpoint, if that is the same."""

    @property
    def values(self) -> list[float]:
        """The values in increasing order."""
        return sorted(self.evaluated)

    @property
    def best(self) -> float:
        """The value with the smallest distance, of those that are equal the smallest."""
        return min(self.values, key=lambda value: self.evaluated[value][0].fid)

    @property
    def protocol(self) -> Protocol:
        """The protocol of the best evaluation."""
        return self.evaluated[self.best][1]

    @property
    def file_name(self) -> str:
        """Name of the table and the figure, without suffix."""
        return f"{self.quantity}s"

    def format_value(self, value: float) -> str:
        """Return a value of the quantity as text."""
        if self.quantity == "step":
            return f"{value:,.0f}"
        return f"{value:g}" if self.quantity == "strength" or not value else f"{value!r}"


def describe_best(sweep: Sweep) -> str:
    """State the best value of a sweep in one sentence.

    Args:
        sweep: The evaluations.

    Returns:
        The sentence. It says so if all distances are equal, or if the best value is the largest one.
    """
    names = [sweep.format_value(value) for value in sweep.values]
    distance, fid = sweep.protocol.distance_name, sweep.evaluated[sweep.best][0].fid
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    if len({metrics.fid for metrics, _ in sweep.evaluated.values()}) == 1:
        return f"{distance} is {fid:.4g} at all {sweep.quantity}s: {listed}."
    more = ", the largest one, so larger ones may be better" if sweep.best == sweep.values[-1] else ""
    best = sweep.format_value(sweep.best)
    return f"Of the {sweep.quantity}s {listed}, {distance} is smallest ({fid:.4g}) at {best}{more}."


def sweep_table(sweep: Sweep) -> Table:
    """Return one row per value, with the smallest distance in bold.

    Args:
        sweep: The evaluations.

    Returns:
        The table, with the best value and the protocol as notes. A score that is not defined has no column.
    """
    protocol = sweep.protocol
    has_score = any(metrics.inception_score is not None for metrics, _ in sweep.evaluated.values())

    def row(value: float) -> Row:
        metrics = sweep.evaluated[value][0]
        deviation = metrics.inception_score_deviation if split_count(protocol.samples) > 1 else None
        score = MeanCell(metrics.inception_score, deviation, None, ".3g")
        return [
            sweep.format_value(value),
            Number(metrics.fid, ".4g", bold=value == sweep.best),
            MeanCell(metrics.kid, metrics.kid_deviation, None, ".3g"),
            Number(metrics.precision, ".3f"),
            Number(metrics.recall, ".3f"),
            *([score] if has_score else []),
        ]

    scores = ["Inception Score"] if has_score else []
    when = "" if sweep.step is None else f" at step {sweep.step:,}"
    decay_note = "Decay 0: the weights of the step, without an average."
    return Table(
        caption=f"{CAPTIONS[sweep.quantity]}{when}. All {sweep.quantity}s have the same noise and labels.",
        label=f"tab:{sweep.file_name}",
        header=(sweep.quantity, protocol.distance_name, "KID", "precision", "recall", *scores),
        groups=[[row(value) for value in sweep.values]],
        notes=[
            describe_best(sweep),
            *([decay_note] if sweep.quantity == "decay" and 0 in sweep.evaluated else []),
            _describe_common_protocol(sweep),
            *([f"{describe_few_samples(protocol)}."] if protocol.few_samples else []),
        ],
    )


def _describe_common_protocol(sweep: Sweep) -> str:
    protocol = sweep.protocol
    parts = {
        "decay": f"{protocol.weights} weights",
        "strength": f"strength {protocol.strength:g}",
        "": f"seed {protocol.seed}",
    }
    *first, last = (part for quantity, part in parts.items() if quantity != sweep.quantity)
    return (
        f"{protocol.samples:,} samples with {', '.join(first)} and {last}, against "
        f"{protocol.reference_count:,} of {protocol.reference} ({protocol.split})."
    )


def sweep_figure(sweep: Sweep) -> Figure:
    """Plot the distance over the quantity, and beside it precision and recall if they are defined.

    Args:
        sweep: The evaluations.

    Returns:
        The figure. A circle marks the smallest distance.
    """
    across = AXES[sweep.quantity]
    ordered = [sweep.evaluated[value][0] for value in sweep.values]
    figure = Figure(figsize=(WIDTH, 2.2), layout="constrained")
    panels: Any = figure.subplots(1, 2, squeeze=False)[0]
    # Distance.
    smallest = sweep.evaluated[sweep.best][0].fid
    distances = [metrics.fid for metrics in ordered]
    panels[0].plot(sweep.values, distances, color=ABC, marker="o", markersize=3.6, linewidth=1.2)
    panels[0].plot(
        [sweep.best],
        [smallest],
        color=INK,
        marker="o",
        markersize=8,
        fillstyle="none",
        linestyle="none",
        label=f"best: {smallest:.4g} at {sweep.format_value(sweep.best)}",
    )
    style_axes(panels[0], across=across, title=f"{sweep.protocol.distance_name}, smaller is better")
    panels[0].margins(y=0.15)
    panels[0].legend(frameon=False, fontsize=8)
    show_text_as_it_is(figure)
    # Precision and recall.
    if all(metrics.precision is None for metrics in ordered):
        figure.delaxes(panels[1])
        return figure
    for name, color, marker in (("precision", TARGET, "s"), ("recall", STANDARD, "^")):
        values = [getattr(metrics, name) for metrics in ordered]
        panels[1].plot(sweep.values, values, color=color, marker=marker, markersize=3.6, linewidth=1.2, label=name)
    style_axes(panels[1], across=across, title="Precision and recall, larger is better")
    panels[1].set_ylim(-0.03, 1.03)
    panels[1].legend(frameon=False, fontsize=8)
    return figure
