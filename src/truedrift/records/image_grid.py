"""Runs that differ in one thing, each with its evaluations on the way: what the paper's image experiments are made of.

One record serves one item: `tab:main_results`, `fig:convergence`, `tab:samples_to_fid`, `fig:ablation_trajectory`,
`tab:cifar100`, `arithmetic` and `temperature-sweep` are all drawn from such grids.
"""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records.evaluated import Metrics, Protocol
from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class EvaluatedStep:
    """An evaluation on the way."""

    step: int
    positives_seen: int
    """Of each class."""
    metrics: Metrics


@dataclass(frozen=True, kw_only=True)
class ImageRun:
    """One run of a grid. `variant` is what the item compares; runs of one seed are pairs."""

    id: str
    """Hash of its whole configuration."""
    variant: str
    """standard or abc; none, positive, negative or both; "row/abc2" of `arithmetic`; "abc/0.5" of a sweep."""
    n: int
    seed: int
    estimator_pos: str
    estimator_neg: str
    arithmetic: str
    normalization: str
    temperatures: tuple[float, ...]
    epochs: int
    steps_per_epoch: int
    parameters: int
    seconds: float
    """Of training and evaluations together, over all starts."""
    evaluations: tuple[EvaluatedStep, ...]


@dataclass(frozen=True, kw_only=True)
class ImageGrid:
    """All runs of an item."""

    item: str
    scale: str
    data: str
    classes: int
    recipe: str
    evaluate_every_epochs: int
    protocol: Protocol
    runs: tuple[ImageRun, ...]
    provenance: Provenance
