"""Mean μ = (1/N) Σ f_i and covariance Σ = M/(N − 1), M = Σ (f_i − μ)(f_i − μ)ᵀ, of features that come in batches.

Batches are merged by Chan, Golub and LeVeque's formula, in float64: with δ = μ_b − μ_a,

    μ = μ_a + δ N_b/N,    M = M_a + M_b + δ δᵀ N_a N_b/N.

Nothing cancels when the mean is large beside the deviation, and neither batch size nor order matters beyond rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift import collectives
from truedrift.axes import Float, Tensor


@dataclass(frozen=True)
class Moments:
    """N, μ and M of the features so far."""

    count: Float[Tensor, ""]
    mean: Float[Tensor, " D"]
    scatter: Float[Tensor, "D D"]

    @property
    def covariance(self) -> Float[Tensor, "D D"]:
        """Unbiased; zero for a single feature."""
        return self.scatter / (self.count - 1).clamp_min(1)

    def merged(self, other: Moments) -> Moments:
        """Of both sets together."""
        count = self.count + other.count
        share = other.count / count.clamp_min(1)
        delta = other.mean - self.mean
        scatter = self.scatter + other.scatter + torch.outer(delta, delta) * (self.count * share)
        return Moments(count, self.mean + delta * share, scatter)

    def over_processes(self) -> Moments:
        """Of the features of all processes; about the joint mean, which they find first."""
        if collectives.size() == 1:
            return self
        count, total = self.count.clone(), self.mean * self.count
        collectives.add((count, total))
        mean = total / count.clamp_min(1)
        delta = self.mean - mean
        scatter = self.scatter + torch.outer(delta, delta) * self.count
        collectives.add((scatter,))
        return Moments(count, mean, scatter)


def no_moments(dimensions: int, device: torch.device | None = None) -> Moments:
    """Of no features."""
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return Moments(zero, zero.expand(dimensions), zero.expand(dimensions, dimensions))


def moments_of(features: Float[Tensor, "N D"]) -> Moments:
    """Of one batch."""
    wide = features.double()
    mean = wide.mean(0)
    centered = wide - mean
    count = torch.tensor(len(wide), dtype=torch.float64, device=wide.device)
    return Moments(count, mean, centered.mT @ centered)
