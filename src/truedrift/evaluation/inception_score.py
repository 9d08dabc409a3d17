"""Inception Score, exp(mean_x KL(p(y|x) ‖ p(y))), over ten parts of the samples: mean and deviation of the parts.

With H the entropy, mean KL = H(p(y)) − mean H(p(y|x)), so that sums of p(y|x) and of p log p are all that is kept of
the samples. Sample i of N belongs to part ⌊10 i/N⌋; labels are dealt in turn, so that every part is balanced to within
one sample a class. A score cannot exceed the number of samples: fewer than 1 000 of them are one part.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift import collectives
from truedrift.axes import Float, Int, Tensor

PARTS = 10
FEWEST = 1000
"""Samples that are taken apart."""


def parts_of(samples: int) -> int:
    """In how many parts so many samples are judged."""
    return PARTS if samples >= FEWEST else 1


@dataclass(frozen=True)
class ScoreSums:
    """Of every part: how many samples, Σ p(y|x), and Σ Σ_y p log p."""

    counts: Float[Tensor, " parts"]
    marginals: Float[Tensor, "parts classes"]
    negative_entropies: Float[Tensor, " parts"]

    @classmethod
    def empty(cls, classes: int, parts: int, device: torch.device | None = None) -> ScoreSums:
        """Of no samples."""
        zeros = torch.zeros(parts, dtype=torch.float64, device=device)
        return cls(zeros, zeros[:, None].expand(-1, classes).clone(), zeros.clone())

    def add(self, ids: Int[Tensor, " B"], total: int, probabilities: Float[Tensor, "B classes"]) -> ScoreSums:
        """With these samples, of `total`."""
        p = probabilities.double()
        part = ids.to(p.device) * len(self.counts) // total
        return ScoreSums(
            self.counts.index_add(0, part, torch.ones_like(part, dtype=torch.float64)),
            self.marginals.index_add(0, part, p),
            self.negative_entropies.index_add(0, part, torch.xlogy(p, p).sum(1)),
        )

    def over_processes(self) -> ScoreSums:
        """Of the samples of all processes."""
        sums = (self.counts.clone(), self.marginals.clone(), self.negative_entropies.clone())
        collectives.add(sums)
        return ScoreSums(*sums)

    def score(self) -> tuple[float, float]:
        """Mean and deviation over the parts that have samples."""
        some = self.counts > 0
        counts = self.counts[some]
        marginal = self.marginals[some] / counts[:, None]
        divergence = self.negative_entropies[some] / counts - torch.xlogy(marginal, marginal).sum(1)
        scores = divergence.exp()
        return float(scores.mean()), float(scores.std(correction=0))
