"""What is kept of features that stream by: their moments, some of them in full, and sums for the Inception Score.

The moments of 50 000 features in 2 048 dimensions take 34 MB, whatever their number. KID, precision and recall compare
features in pairs, and take those of the ids that were chosen beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift import collectives
from truedrift.axes import Float, Int, Tensor
from truedrift.evaluation.extractors.base import Extracted
from truedrift.evaluation.inception_score import ScoreSums, parts_of
from truedrift.evaluation.moments import Moments, moments_of, no_moments

COMPARED = 10_000
"""Features of each side, at most, that are compared in pairs."""


@dataclass
class Collected:
    """Of `total` features, those of the sorted ids `chosen` in full."""

    total: int
    chosen: Int[Tensor, " K"]
    moments: Moments
    kept: Float[Tensor, "K D"]
    scores: ScoreSums | None
    seen: int = 0

    @classmethod
    def begin(
        cls, total: int, chosen: Int[Tensor, " K"], dimensions: int, classes: int | None, device: torch.device
    ) -> Collected:
        """Before the first batch. Sums are in float64, which Apple's GPUs do not have."""
        where = device if device.type == "cuda" else torch.device("cpu")
        return cls(
            total,
            chosen,
            no_moments(dimensions, where),
            torch.zeros(len(chosen), dimensions, device=where),
            None if classes is None else ScoreSums.empty(classes, parts_of(total), where),
        )

    def add(self, ids: Int[Tensor, " B"], extracted: Extracted) -> None:
        """A batch: `ids` are consecutive."""
        features = extracted.features.to(self.kept.device)
        self.moments = self.moments.merged(moments_of(features))
        first, end = torch.searchsorted(self.chosen, torch.stack((ids[0], ids[-1] + 1))).tolist()
        self.kept[first:end] = features[self.chosen[first:end] - ids[0]].float()
        if self.scores is not None and extracted.probabilities is not None:
            self.scores = self.scores.add(ids, self.total, extracted.probabilities.to(self.kept.device))
        self.seen += len(ids)

    def over_processes(self) -> Collected:
        """Of all processes; every chosen feature is in one of them, and zero elsewhere."""
        kept = self.kept.clone()
        collectives.add((kept,))
        scores = None if self.scores is None else self.scores.over_processes()
        return Collected(self.total, self.chosen, self.moments.over_processes(), kept, scores, self.total)


def first_ids(total: int) -> Int[Tensor, " K"]:
    """Of samples that are alike whatever their number: the first ones."""
    return torch.arange(min(total, COMPARED))
