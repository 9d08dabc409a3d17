"""Exact expectations over draws from a few atoms, by summing over every outcome: no sampling, no quadrature.

n draws with replacement from atoms a with probabilities p are, up to order, counts c with Σc = n and probability
n!/Πc! · Πp^c. A pool of three atoms has (n + 1)(n + 2)/2 of them: E[T_n] is a finite sum, exact to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Reweight = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Pool:
    """Atoms y [A, D] with log-weights [A], drawn with probabilities p [A]."""

    y: Tensor
    log_w: Tensor
    p: Tensor

    def moment(self, k: int) -> Tensor:
        """E[w^k] with w scaled to E[w] = 1."""
        return (self.p * self._w**k).sum()

    def displacement(self, k: int) -> Tensor:
        """g_k = E[w^k (y − T*)] with w scaled to E[w] = 1."""
        return (self.p * self._w**k) @ (self.y - self.T_star)

    @property
    def T_star(self) -> Tensor:
        """E[w y] / E[w]."""
        return (self.p * self._w) @ self.y

    @property
    def _w(self) -> Tensor:
        w = self.log_w.exp()
        return w / (self.p * w).sum()


def slope(coarse: Tensor, fine: Tensor, factor: float = 2) -> float:
    """The exponent k of ‖bias‖ ∝ n^k between two sizes."""
    return math.log(fine.norm() / coarse.norm()) / math.log(factor)


def compositions(n: int, atoms: int) -> Iterator[tuple[int, ...]]:
    """Every way to write n as an ordered sum of `atoms` counts."""
    if atoms == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, atoms - 1):
            yield (first, *rest)


def multinomial(counts: tuple[int, ...], p: list[float]) -> float:
    """n!/Πc! · Πp^c, the coefficient as an exact integer."""
    coefficient, n = 1, 0
    for count in counts:
        n += count
        coefficient *= math.comb(n, count)
    return coefficient * math.prod(probability**count for probability, count in zip(p, counts, strict=True))


def outcomes(pool: Pool, n: int) -> tuple[Tensor, Tensor]:
    """(counts [M, A], probabilities [M]) of n draws."""
    counts = list(compositions(n, len(pool.p)))
    p = pool.p.tolist()
    return torch.tensor(counts), torch.tensor([multinomial(c, p) for c in counts], dtype=torch.float64)


def minibatches(counts: Tensor) -> Tensor:
    """[M, n]: the atom of each draw, in order of the atoms."""
    ends = counts.cumsum(-1)
    return (torch.arange(int(ends[0, -1])) >= ends[:, :-1].unsqueeze(-1)).sum(-2)


def expected_bias(pool: Pool, n: int, reweight: Reweight) -> Tensor:
    """E[Σ γ_i y_i] − T* over all minibatches of n."""
    counts, probability = outcomes(pool, n)
    drawn = minibatches(counts)
    gamma = reweight(pool.log_w[drawn])
    return probability @ torch.einsum("mn,mnd->md", gamma, (pool.y - pool.T_star)[drawn])


def expected_bias_of_strata(first: Pool, second: Pool, sizes: tuple[int, int], reweight: Reweight) -> Tensor:
    """The same for minibatches of `sizes` draws from two pools, side by side, against the target of that mixture."""
    (c_1, q_1), (c_2, q_2) = outcomes(first, sizes[0]), outcomes(second, sizes[1])
    drawn_1, drawn_2 = minibatches(c_1), minibatches(c_2)
    pairs = torch.cartesian_prod(torch.arange(len(q_1)), torch.arange(len(q_2)))
    log_w = torch.cat((first.log_w[drawn_1][pairs[:, 0]], second.log_w[drawn_2][pairs[:, 1]]), -1)
    mass = torch.cat([size * pool.p * pool.log_w.exp() for size, pool in zip(sizes, (first, second), strict=True)])
    y = torch.cat((first.y, second.y))
    y = y - mass @ y / mass.sum()
    columns = torch.cat((drawn_1[pairs[:, 0]], len(first.p) + drawn_2[pairs[:, 1]]), -1)
    return (q_1[pairs[:, 0]] * q_2[pairs[:, 1]]) @ torch.einsum("mn,mnd->md", reweight(log_w), y[columns])


def centroids_of_counts(pool: Pool, counts: Tensor) -> Tensor:
    """T_n − T* of every outcome: Σ c w y / Σ c w."""
    cw = counts * pool.log_w.exp()
    return cw @ (pool.y - pool.T_star) / cw.sum(-1, keepdim=True)


def resamples(counts: Tensor, of: Tensor) -> Tensor:
    """[M, M]: the probability that a resample of the minibatch `of` [M, A] has the counts `counts` [M, A]."""
    n = int(counts[0].sum())
    log_coefficient = math.lgamma(n + 1) - torch.lgamma(counts.double() + 1).sum(-1)
    log_p = (of.double() / n).log().clamp_min(-1e6)  # an atom that was not drawn cannot be drawn again
    return (log_coefficient + log_p @ counts.double().T).exp()


def expected_bias_of_bootstrap(pool: Pool, n: int) -> Tensor:
    """E[2 T_n − E*[T*_n]] − T* with the ideal bootstrap: infinitely many resamples."""
    counts, probability = outcomes(pool, n)
    T = centroids_of_counts(pool, counts)
    return probability @ (2 * T - resamples(counts, counts) @ T)


def expected_bias_of_br_snis(pool: Pool, n: int, iterations: int, burn_in: int) -> Tensor:
    """E[mean over k ≥ burn_in of the centroid of pool k] − T*, by the transition matrix of the state over the atoms."""
    counts, probability = outcomes(pool, n - 1)
    w = pool.log_w.exp()
    atoms = len(w)
    transition = torch.zeros(atoms, atoms, dtype=torch.float64)
    centroid = torch.zeros_like(pool.y)
    for state in range(atoms):
        cw = (counts + torch.nn.functional.one_hot(torch.tensor(state), atoms)) * w
        alpha = cw / cw.sum(-1, keepdim=True)
        transition[state] = probability @ alpha
        centroid[state] = transition[state] @ (pool.y - pool.T_star)
    law, kept = pool.p, torch.zeros(pool.y.shape[-1], dtype=torch.float64)
    for k in range(iterations):
        if k >= burn_in:
            kept += law @ centroid / (iterations - burn_in)
        law = law @ transition
    return kept
