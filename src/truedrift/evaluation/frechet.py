"""Fréchet distance of two Gaussians, d² = ‖μ_1 − μ_2‖² + tr(Σ_1 + Σ_2 − 2 (Σ_1 Σ_2)^½): FID in Inception features.

(Σ_1 Σ_2)^½ has the trace of (A Σ_2 A)^½ with A = Σ_1^½, which is symmetric: two eigendecompositions in float64, no
complex numbers. Covariances of fewer features than dimensions are singular; eigenvalues that rounding made negative
are zero. The result is d², as everywhere in the literature.
"""

from __future__ import annotations

import torch

from truedrift.axes import Float, Tensor
from truedrift.evaluation.moments import Moments


def frechet_distance(a: Moments, b: Moments) -> float:
    """d² of the Gaussians with these moments."""
    shift = (a.mean - b.mean).square().sum()
    sigma_a, sigma_b = a.covariance.cpu(), b.covariance.cpu()
    root = _root(sigma_a)
    overlap = torch.linalg.eigvalsh(_symmetric(root @ sigma_b @ root)).clamp_min(0).sqrt().sum()
    distance = shift.cpu() + sigma_a.trace() + sigma_b.trace() - 2 * overlap
    return float(distance.clamp_min(0))


def _root(sigma: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """Σ^½ of a symmetric matrix without negative eigenvalues."""
    values, vectors = torch.linalg.eigh(_symmetric(sigma))
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.mT


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2
