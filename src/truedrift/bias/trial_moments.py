"""Moments of a centroid from M trials: ē = T̄ − T*, Σ̂, and estimates of the norm of the bias (`app:toy`).

    naive      ‖ē‖                             inflated by the noise √(tr Σ̂/M) (`app:baselines`)
    corrected  b̂ = √max(0, b̂²),  b̂² = ‖ē‖² − tr Σ̂/M   (`app:toy`)

b̂² is unbiased; b̂ is not where the noise is as large as the bias. The variance of b̂² is 4 bᵀΣb/M + 2 tr Σ²/M², where
ēᵀΣ̂ē − tr Σ̂²/M replaces bᵀΣb.
"""

from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor


@dataclass(frozen=True)
class TrialMoments:
    """Moments of one estimator over M trials at every query and every n."""

    n: tuple[int, ...]
    trials: int
    T_star: Tensor
    """[Q, D] the target, the centroid of the whole pool."""
    bias: Tensor
    """[Q, len(n), D] ē, the mean over trials of T − T*."""
    covariance: Tensor
    """[Q, len(n), D, D] Σ̂ over trials."""

    @property
    def variance(self) -> Float[Tensor, "Q S"]:
        """tr Σ̂."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).sum(-1)

    @property
    def noise(self) -> Float[Tensor, "Q S"]:
        """√(tr Σ̂/M): the root mean square of ‖ē‖ if there is no bias."""
        return (self.variance / self.trials).sqrt()

    @property
    def naive(self) -> Float[Tensor, "Q S"]:
        """‖ē‖."""
        return torch.linalg.vector_norm(self.bias, dim=-1)

    @property
    def squared(self) -> Float[Tensor, "Q S"]:
        """‖ē‖² − tr Σ̂/M: unbiased for ‖bias‖²; may be negative."""
        return self.naive.square() - self.noise.square()

    @property
    def corrected(self) -> Float[Tensor, "Q S"]:
        """b̂ (`app:toy`)."""
        return self.squared.clamp_min(0).sqrt()

    @property
    def error(self) -> Float[Tensor, "Q S"]:
        """Standard error of ‖ē‖ along ē: √(ēᵀΣ̂ē/M)/‖ē‖."""
        return (self._along() / self.trials).sqrt() / self.naive.clamp_min(torch.finfo(self.bias.dtype).tiny)

    @property
    def squared_error(self) -> Float[Tensor, "Q S"]:
        """Standard error of b̂²."""
        chance = self.covariance.square().sum((-2, -1)) / self.trials**2
        return (4 * self._along() / self.trials - 2 * chance).maximum(2 * chance).sqrt()

    def _along(self) -> Tensor:
        """Return ēᵀΣ̂ē."""
        return torch.einsum("...d,...df,...f->...", self.bias, self.covariance, self.bias)


def trial_moments(n: tuple[int, ...], trials: int, T_star: Tensor, first: Tensor, second: Tensor) -> TrialMoments:
    """Compute the moments from Σ_t e_t [Q, len(n), D] and Σ_t e_t e_tᵀ [Q, len(n), D, D]."""
    mean = first / trials
    covariance = (second - trials * mean.unsqueeze(-1) * mean.unsqueeze(-2)) / (trials - 1)
    return TrialMoments(n, trials, T_star, mean, covariance)
