"""What theory says of the bias, from moments of the whole pool: w scaled to E[w] = 1, y centered at T*.

    m_k = E[w^k],   g_k = E[w^k (y − T*)]   (g_1 = 0).

| quantity                  | formula                    | label            |
|---------------------------|----------------------------|------------------|
| bias at n = 1             | E[y] − T* = −Cov(w, y)     | `thm:bias_n1`    |
| leading bias              | −g_2 / n                   | `thm:ratio_bias` |
| leading residual of ABC   | (3 m_2 g_2 − 2 g_3) / n²   | new              |
| λ                         | m_2, n_eff = n / λ         | `app:temperature`|
| sensitivity ∂T*/∂τ        | E[w d (y − T*)] / τ²       | `app:temperature`|
| compensating shift Δ      | ∂T*/∂τ · Δ = g_2 / n       | `eq:compensation`|

The sensitivity is that of the Laplace kernel, ∂w/∂τ = w d/τ². No single Δ solves the last line for every query: in
D > 1 the two vectors must be collinear, and their ratio must be the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.distance import pairwise_distance
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.kernels.weights import logsumexp
from truedrift.validation import require_features, require_same_dimension, require_temperature


@dataclass(frozen=True)
class PoolMoments:
    """Moments of the pool at every query."""

    T_star: Tensor
    """[Q, D] E[w y]."""
    mean: Tensor
    """[D] E[y]."""
    m_2: Tensor
    """[Q, 1] E[w²] = λ."""
    g_2: Tensor
    """[Q, D] E[w² (y − T*)]."""
    g_3: Tensor
    """[Q, D] E[w³ (y − T*)]."""

    def bias_of_one(self) -> Float[Tensor, "Q D"]:
        """E[T_1] − T* = −Cov(w, y) / E[w], exactly (`eq:bias_n1`)."""
        return self.mean - self.T_star

    def leading_bias(self, n: int) -> Float[Tensor, "Q D"]:
        """−E[w² (y − T*)] / (n E[w]²) (`eq:ratio_bias`)."""
        return -self.g_2 / n

    def abc_residual(self, n: int) -> Float[Tensor, "Q D"]:
        """(3 m_2 g_2 − 2 g_3) / n²: what ABC leaves, to leading order."""
        return (3 * self.m_2 * self.g_2 - 2 * self.g_3) / n**2

    def n_eff(self, n: int) -> Float[Tensor, " Q"]:
        """n / λ with λ = E[w²] / E[w]² ≥ 1, which grows as τ falls."""
        return n / self.m_2.squeeze(-1)


def pool_moments(
    x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], *, tau: float, kernel: str | LogKernel = "laplace"
) -> PoolMoments:
    """The moments of the pool at queries x, in float64."""
    w, y = _weights(x, pool, tau, kernel)
    T_star = w @ y / len(y)
    m_2, sums = w.square().mean(-1, keepdim=True), {k: w.pow(k) @ y / len(y) for k in (2, 3)}
    m_3 = w.pow(3).mean(-1, keepdim=True)
    return PoolMoments(T_star, y.mean(0), m_2, sums[2] - m_2 * T_star, sums[3] - m_3 * T_star)


@dataclass(frozen=True)
class Compensation:
    """The shift of τ that would undo the leading bias at each query (`eq:compensation`), if one did."""

    shift: Tensor
    """[Q] n·Δ: the least-squares solution of ∂T*/∂τ · Δ = g_2/n, times n. One constant is needed for all queries."""
    cosine: Tensor
    """[Q] |cos| of the angle between ∂T*/∂τ and g_2. It must be 1."""


def compensation(x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], *, tau: float) -> Compensation:
    """Both conditions of `app:temperature` at queries x, for the Laplace kernel."""
    moments = pool_moments(x, pool, tau=tau)
    slope = sensitivity(x, pool, tau=tau)
    along, size = (slope * moments.g_2).sum(-1), slope.square().sum(-1)
    tiny = torch.finfo(size.dtype).tiny
    return Compensation(
        shift=along / size.clamp_min(tiny),
        cosine=along.abs() / (size * moments.g_2.square().sum(-1)).sqrt().clamp_min(tiny),
    )


def sensitivity(x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], *, tau: float) -> Float[Tensor, "Q D"]:
    """∂T*/∂τ = E[w d (y − T*)] / (τ² E[w]) of the Laplace kernel."""
    w, y = _weights(x, pool, tau, "laplace")
    wd = w * pairwise_distance(x.double(), pool.double())
    T_star = w @ y / len(y)
    return (wd @ y / len(y) - wd.mean(-1, keepdim=True) * T_star) / tau**2


def _weights(x: Tensor, pool: Tensor, tau: float, kernel: str | LogKernel) -> tuple[Tensor, Tensor]:
    """w [Q, N] with mean 1, and the pool in float64."""
    require_temperature(tau)
    require_features("x", x, "Q, D")
    require_features("pool", pool, "N, D")
    require_same_dimension(x=x, pool=pool)
    x, pool = x.double(), pool.double()
    log_w = log_kernel(kernel)(x, pool, tau)
    return (log_w - logsumexp(log_w, -1)).exp() * len(pool), pool
