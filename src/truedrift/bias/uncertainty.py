"""How well the references at hand determine the bias: the same computation with parts of them left out.

The references are split at random into G = 8 groups, copies of the same one always into the same group: what a copy
tells is known already. With b the bias vector of a query from all references and b_(g) the one without group g
(subsamples of 7/8 of them, without replacement), the delete-group jackknife

    Var b ≈ (G − 1)/G Σ_g (b_(g) − b̄)(b_(g) − b̄)ᵀ

carries the scatter of the subsamples over to samples of all N: subsamples share most of their points, and their sum of
squares is scaled up for that. Three numbers come out of it, for the mean over queries θ = mean ‖b‖:

    error  √((G − 1)/G Σ_g (log θ_(g) − mean)²)     standard error of log θ
    noise  mean √(tr Var b) / θ                     the same for the vector: large where θ is a norm of noise
    drift  (G − 1)(log θ − mean log θ_(g))           the jackknife's estimate of what more references would change

and an interval of 95 %,

    log θ ± √((t · error)² + (REACH · drift)² + (WIDENING · noise)² + (t · error of queries)²),

with t the quantile of Student's distribution with G − 1 degrees of freedom. Drift and noise are in it because a pool of
N references has a bias of its own, of order 1/N, which no scatter shows; the last term is there when the queries are a
sample of the user's.

α and T of simulated minibatches, drawn with replacement from a user's references: n_eff, dominance, √(tr Var T_n).

Every draw serves all queries. The mean of T is an integral (`expected_weights`); these three are not, or not cheaply in
many dimensions, and need no more than a few per cent.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias.diagnosis import Quantiles, Weights
from truedrift.bias.expected_weights import References
from truedrift.kernels.weights import effective_sample_size

GROUPS = 8
STUDENT = 2.3646
"""97.5 % quantile with 7 degrees of freedom."""
REACH = 2.0
WIDENING = 0.4
"""Chosen with the light's thresholds: the smallest with which 95 % of the intervals held the truth."""
ESTIMATORS = ("standard", "abc", "abc2")


def jackknife_group_count(N: int, generator: torch.Generator) -> Int[Tensor, " N"]:
    """Labels 0 … G − 1 of the references, in random order, as equally often as can be."""
    labels = torch.arange(N) % min(GROUPS, N)
    return labels[torch.randperm(N, generator=generator)]


def count_distinct(rows: Float[Tensor, "N D"]) -> Int[Tensor, " N"]:
    """Which of the distinct rows each row is: 0, 1, … in the order of their first appearance, bit by bit but for −0.

    By a hash of 128 bits: the rows themselves are large, and a sum of floats depends on its order.
    """
    known: dict[bytes, int] = {}
    hashes = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in (rows + 0.0).contiguous().numpy())
    return torch.tensor([known.setdefault(each, len(known)) for each in hashes])


def jackknife_levels(d: Float[Tensor, "Q N"], within: float) -> Float[Tensor, "Q N"]:
    """Numbers in place of the values of each row, the same for values that gaps of at most `within` connect.

    Distances of copies differ by rounding: a product of matrices adds up in another order at its edges.
    """
    ordered, order = d.sort(-1)
    steps = (ordered.diff(dim=-1, prepend=ordered[:, :1]) > within).to(d.dtype).cumsum(-1)
    return torch.empty_like(d).scatter_(-1, order, steps)


def jackknife_groups(which: Int[Tensor, " N"], generator: torch.Generator) -> Int[Tensor, " N"]:
    """Labels of references of which row i is the distinct one `which[i]`: `groups` of the distinct ones.

    Where all are the same there is nothing else to leave out, and `groups` of the copies are as good as any.
    """
    count = int(which.max()) + 1
    return jackknife_group_count(count, generator)[which] if count > 1 else jackknife_group_count(len(which), generator)


@dataclass(frozen=True)
class Estimate:
    """One estimator at one n."""

    estimator: str
    norms: Tensor
    """[Q] ‖b‖ from all references."""
    error: float
    noise: float
    drift: float

    @property
    def norm(self) -> float:
        """θ."""
        return float(self.norms.mean())

    def interval(self, queries: int, floor: float) -> tuple[float, float]:
        """Of 95 %, for the mean over all `queries`, of which these are a sample; 0 to the floor at or below it."""
        Q = len(self.norms)
        if self.norm <= floor:
            return 0.0, floor
        left_out = 1 - Q / queries
        of_queries = math.sqrt(left_out * float(self.norms.var()) / Q) / self.norm if left_out > 0 else 0.0
        half = half_width(error=self.error, drift=self.drift, noise=self.noise, of_queries=of_queries)
        return self.norm * math.exp(-half), self.norm * math.exp(min(half, 700.0))


def half_width(*, error: float, drift: float, noise: float, of_queries: float = 0.0) -> float:
    """Of the interval of log θ."""
    return math.hypot(STUDENT * error, REACH * drift, WIDENING * noise, STUDENT * of_queries)


def jackknife_estimates(
    seen: References, n: int, labels: Int[Tensor, " N"], sizes: tuple[int, ...] = ()
) -> tuple[tuple[Estimate, ...], Float[Tensor, "estimators sizes"]]:
    """Of every estimator at n, and θ at further `sizes`, which cost little beside it."""
    b = seen.biases(ESTIMATORS, (n, *sizes))[:, 0]  # [Q, estimators, 1 + sizes, D]
    without = seen.biases(ESTIMATORS, (n,), labels)[:, :, :, 0]  # [Q, G, estimators, D]
    found = tuple(_estimate(name, b[:, k, 0], without[:, :, k]) for k, name in enumerate(ESTIMATORS))
    return found, b[:, :, 1:].norm(dim=-1).mean(0)


def _estimate(name: str, b: Float[Tensor, "Q D"], without: Float[Tensor, "Q G D"]) -> Estimate:
    G = without.shape[1]
    norms = b.norm(dim=-1)
    theta = norms.mean().clamp_min(torch.finfo(norms.dtype).tiny)
    logs = _log(without.norm(dim=-1).mean(0))
    variance = (without - without.mean(1, keepdim=True)).square().sum((1, 2)) * (G - 1) / G
    return Estimate(
        estimator=name,
        norms=norms,
        error=math.sqrt((G - 1) / G * float((logs - logs.mean()).square().sum())),
        noise=float(variance.sqrt().mean() / theta),
        drift=(G - 1) * float(_log(theta) - logs.mean()),
    )


def _log(positive: Tensor) -> Tensor:
    return positive.clamp_min(torch.finfo(positive.dtype).tiny).log()


DOMINATES_ABOVE = 0.5
MOST_DRAWS, FEWEST_DRAWS = 256, 16
_ELEMENTS = 1 << 23


@dataclass(frozen=True)
class SimulatedBatches:
    """What the minibatches showed."""

    weights: Weights
    noise: float
    """√(tr Var T_n), root mean square over queries."""


def simulate_batches(references: References, n: int, generator: torch.Generator) -> SimulatedBatches:
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
    return SimulatedBatches(summarize_batches(torch.cat(n_eff, 1), torch.cat(dominance, 1), n), float(variance.sqrt()))


def _centroids(references: References, index: Tensor, alpha: Tensor) -> Tensor:
    """[Q, draws, D]."""
    if references.own:
        return (alpha * references.y[:, index]).sum(-1, keepdim=True)
    return (alpha.transpose(0, 1) @ references.y[index]).transpose(0, 1)


def summarize_batches(n_eff: Tensor, dominance: Tensor, n: int) -> Weights:
    """Of rows of weights, from 1/Σα² and the largest α of each."""
    return Weights(
        rows=n_eff.numel(),
        n=n,
        n_eff=Quantiles.of(n_eff),
        dominance=Quantiles.of(dominance),
        sum_of_squares=Quantiles.of(1 / n_eff),
        dominated=float((dominance > DOMINATES_ABOVE).double().mean()),
    )
