"""α and T of simulated minibatches, drawn with replacement from a user's references: n_eff, dominance, √(tr Var T_n).

Every draw serves all queries. The mean of T is an integral (`expected_weights`); these three are not, or not cheaply in
many dimensions, and need no more than a few per cent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift.axes import Tensor
from truedrift.bias.diagnosis import Quantiles, Weights
from truedrift.bias.gauging.references import References
from truedrift.kernels.weights import effective_sample_size

DOMINATES_ABOVE = 0.5
MOST_DRAWS, FEWEST_DRAWS = 256, 16
_ELEMENTS = 1 << 23


@dataclass(frozen=True)
class Simulated:
    """What the minibatches showed."""

    weights: Weights
    noise: float
    """√(tr Var T_n), root mean square over queries."""


def simulate(references: References, n: int, generator: torch.Generator) -> Simulated:
    """Up to 256 minibatches of n references, fewer when n is large."""
    Q, N = references.s.shape
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, _ELEMENTS // n))
    width = Q + (0 if references.own else references.y.shape[-1])
    at_a_time = max(1, _ELEMENTS // (n * width))
    n_eff, dominance, T = [], [], []
    for some in torch.randint(N, (draws, n), generator=generator).split(at_a_time):
        alpha = (-references.s[:, some]).softmax(-1)  # [Q, draws, n]
        n_eff.append(effective_sample_size(alpha))
        dominance.append(alpha.amax(-1))
        T.append(_centroids(references, some, alpha))
    variance = torch.cat(T, 1).var(1).sum(-1).mean()
    return Simulated(summary(torch.cat(n_eff, 1), torch.cat(dominance, 1), n), float(variance.sqrt()))


def _centroids(references: References, index: Tensor, alpha: Tensor) -> Tensor:
    """[Q, draws, D]."""
    if references.own:
        return (alpha * references.y[:, index]).sum(-1, keepdim=True)
    return (alpha.transpose(0, 1) @ references.y[index]).transpose(0, 1)


def summary(n_eff: Tensor, dominance: Tensor, n: int) -> Weights:
    """Of rows of weights, from 1/Σα² and the largest α of each."""
    return Weights(
        rows=n_eff.numel(),
        n=n,
        n_eff=Quantiles.of(n_eff),
        dominance=Quantiles.of(dominance),
        sum_of_squares=Quantiles.of(1 / n_eff),
        dominated=float((dominance > DOMINATES_ABOVE).double().mean()),
    )
