"""References as the queries of the gauge see them: s = −log w [Q, N] at one temperature, and the products with y.

y is either the features [N, D], the same for every query, or the distances themselves [Q, N]: Σ α d is a centroid of
one dimension whose pool differs from query to query. What is asked of y is asked here, so that nothing else needs to
know which of both it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias.gauging.expected_weights import Means, deviations, resolvable
from truedrift.kernels.weights import effective_sample_size


@dataclass(frozen=True)
class References:
    """`s` [Q, N], 0 at each query's largest weight, and y: [N, D], or [Q, N] where every query has its own."""

    s: Tensor
    y: Tensor
    own: bool

    @classmethod
    def seen(cls, minus_log_w: Float[Tensor, "Q N"], y: Tensor, *, own: bool) -> References:
        """From −log w up to a constant of each query; y is centered, which changes no bias."""
        s = resolvable(minus_log_w - minus_log_w.amin(-1, keepdim=True))
        return cls(s, y - y.mean(-1 if own else 0, keepdim=True), own)

    @cached_property
    def alpha(self) -> Float[Tensor, "Q N"]:
        """α* over all references."""
        return (-self.s).softmax(-1)

    def n_eff(self, which: Int[Tensor, " N"]) -> Float[Tensor, " Q"]:
        """1/Σα*² over the distinct references, of which reference i is `which[i]`: copies are taken together."""
        alpha = self.alpha.new_zeros(len(self.alpha), int(which.max()) + 1).index_add_(-1, which, self.alpha)
        return effective_sample_size(alpha)

    def sums(self, weights: Float[Tensor, "some N columns"], queries: slice) -> Float[Tensor, "some columns D"]:
        """Σ_i weights_i y_i of these queries."""
        if self.own:
            return weights.mT @ self.y[queries].unsqueeze(-1)
        some, N, columns = weights.shape
        rows = weights.mT.reshape(some * columns, N)  # one product that reads y once, not one for each query
        return (rows @ self.y).view(some, columns, -1)

    def biases(
        self, estimators: Sequence[str], n: Sequence[int], groups: Int[Tensor, " N"] | None = None
    ) -> Float[Tensor, "Q pools estimators sizes D"]:
        """E[T_n] − T*, exactly, with all references as the pool (pools = 1), or without one group after another."""
        means = Means(tuple(estimators), tuple(n))
        parts = [self.sums(weights, queries) for queries, weights in deviations(self.s, means, groups)]
        found = torch.cat(parts)
        return found.view(len(found), -1, len(estimators), len(n), found.shape[-1])

    @cached_property
    def target(self) -> Float[Tensor, "Q D"]:
        """T*, less the mean of y."""
        return self.sums(self.alpha.unsqueeze(-1), slice(None)).squeeze(-2)

    @property
    def scatter(self) -> Tensor:
        """E‖y − E[y]‖², [] or [Q]."""
        return self.y.square().mean(-1) if self.own else self.y.square().sum(-1).mean()

    @property
    def spread(self) -> Float[Tensor, " Q"]:
        """√(E‖y − T*‖²)."""
        return (self.scatter + self.target.square().sum(-1)).sqrt()

    @property
    def pull(self) -> float:
        """‖T* − E[y]‖ over √(E‖y − E[y]‖²), root mean square over queries."""
        tiny = torch.finfo(self.s.dtype).tiny
        return float((self.target.square().sum(-1) / self.scatter.clamp_min(tiny)).mean().sqrt())

    def abc_residual(self, n: int) -> Float[Tensor, "Q D"]:
        """(3 m_2 g_2 − 2 g_3)/n² (`theory`), with w = N α*."""
        N = self.s.shape[-1]
        w = N * self.alpha
        m_2, m_3 = (w.pow(k).mean(-1, keepdim=True) for k in (2, 3))
        sums = self.sums(torch.stack((w.square(), w.pow(3)), -1), slice(None)) / N
        g_2, g_3 = sums[:, 0] - m_2 * self.target, sums[:, 1] - m_3 * self.target
        return (3 * m_2 * g_2 - 2 * g_3) / n**2
