"""The record of a grid of image runs: the evaluations of every run, and the protocol that they share.

Each record serves one item: `tab:main_results`, `fig:convergence`, `tab:samples_to_fid`, `fig:ablation_trajectory`,
`tab:cifar100`, `arithmetic`, `temperature-sweep`, `matching` and `images` are all made from such grids.
"""

from dataclasses import dataclass

from truedrift.errors import UserError
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.records.provenance import Provenance

OWN_SIZES = ("matching", "images")
"""Items whose variants have each their own n."""


@dataclass(frozen=True, kw_only=True)
class EvaluatedStep:
    """An evaluation during training."""

    step: int
    positives_seen: int
    """Positives per class."""
    metrics: Metrics


@dataclass(frozen=True, kw_only=True)
class ImageRun:
    """One run of a grid. `variant` is what the item compares; runs with the same seed are pairs."""

    id: str
    """Hash of its whole configuration."""
    variant: str
    """standard or abc; none, positive, negative or both; "row/abc2" in `arithmetic`; "abc/0.5" in the sweep."""
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
    """Seconds of training and evaluations together, over all starts."""
    evaluations: tuple[EvaluatedStep, ...]
    step_seconds: float | None = None
    """Seconds per step in the fastest logged interval, which evaluations and other processes disturbed least; None in
    records of earlier versions."""

    @property
    def distances(self) -> list[float]:
        """Distance of every evaluation, in order."""
        return [each.metrics.fid for each in self.evaluations]


@dataclass(frozen=True, kw_only=True)
class ImageGrid:
    """All runs of an item, and the protocol that their evaluations share."""

    item: str
    scale: str
    data: str
    classes: int
    recipe: str
    evaluate_every_epochs: int
    protocol: Protocol
    runs: tuple[ImageRun, ...]
    provenance: Provenance

    def __post_init__(self) -> None:
        pairs = {(run.variant, run.n) for run in self.runs}
        variants, sizes = {variant for variant, _ in pairs}, {n for _, n in pairs}
        evaluated = all(run.evaluations for run in self.runs)
        missing = self.item not in OWN_SIZES and len(pairs) < len(variants) * len(sizes)
        if len(variants) < 2 or missing or not evaluated:
            raise UserError(
                f"the record of {self.item} is incomplete (runs: {len(self.runs)})",
                "must have at least two variants, each with evaluated runs at every n",
                f"run truedrift reproduce {self.item} again",
            )
