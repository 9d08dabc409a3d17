"""The bias as theory predicts it, from moments of the whole pool: w scaled to E[w] = 1, y centered at T*.

    m_k = E[w^k],   g_k = E[w^k (y − T*)]   (g_1 = 0).

| quantity                  | formula                    | label            |
|---------------------------|----------------------------|------------------|
| bias at n = 1             | E[y] − T* = −Cov(w, y)     | `thm:bias_n1`    |
| leading bias              | −g_2 / n                   | `thm:ratio_bias` |
| leading residual of ABC   | (3 m_2 g_2 − 2 g_3) / n²   | new              |
| λ                         | m_2, n_eff = n / λ         | `app:temperature`|
| sensitivity ∂T*/∂τ        | −E[w log w (y − T*)] / τ   | `app:temperature`|
| compensating shift Δ      | ∂T*/∂τ · Δ = g_2 / n       | `eq:compensation`|

The sensitivity is that of a kernel e^{−d/τ} such as Laplace, ∂w/∂τ = w d/τ²: E[w d (y − T*)]/τ² with d = −τ log w up
to a constant, which drops out because g_1 = 0. No single Δ solves the last line for every query: in D > 1 the two
vectors must be collinear, and their ratio must be the same everywhere.

Weights [Q, N] are never formed at once: queries come in blocks, and memory does not grow with their number.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.quadrature import blocks, minus_log_kernel
from truedrift.kernels.kernel import LogKernel, laplace, log_kernel
from truedrift.tensor_checks import require_matrices, require_temperature, require_temperatures


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

    def abc_residual(self, n: int) -> Float[Tensor, "Q D"]:
        """Return the leading bias of ABC."""
        return abc_residual(self.m_2, self.g_2, self.g_3, n)

    def n_eff(self, n: int) -> Float[Tensor, " Q"]:
        """Return n / λ with λ = E[w²] / E[w]² ≥ 1, which grows as τ falls."""
        return n / self.m_2.squeeze(-1)


def abc_residual(
    m_2: Float[Tensor, "Q 1"], g_2: Float[Tensor, "Q D"], g_3: Float[Tensor, "Q D"], n: int
) -> Float[Tensor, "Q D"]:
    """Return (3 m_2 g_2 − 2 g_3) / n², the bias that ABC leaves to leading order."""
    return (3 * m_2 * g_2 - 2 * g_3) / n**2


def pool_moments(
    x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], *, tau: float, kernel: str | LogKernel = "laplace"
) -> PoolMoments:
    """Compute the moments of the pool at every query.

    Args:
        x: Queries [Q, D].
        pool: References [N, D], the whole pool that minibatches are drawn from.
        tau: Temperature τ > 0.
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k.

    Returns:
        T*, E[y], m_2, g_2 and g_3 in float64.

    Raises:
        UserError: If an argument is invalid.

    Example:
        >>> moments = pool_moments(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]]), tau=1.0)
        >>> -moments.g_2 / 8  # the leading bias at n = 8
        tensor([[0.0227]], dtype=torch.float64)
    """
    y = pool.double()
    parts = [_moments(log_w, y) for log_w in _log_weights(x, pool, tau, kernel)]
    T_star, m_2, g_2, g_3 = (torch.cat(each) for each in zip(*parts, strict=True))
    return PoolMoments(T_star, y.mean(0), m_2, g_2, g_3)


def effective_share(
    x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], *, taus: Sequence[float]
) -> Float[Tensor, "Q taus"]:
    """Return n_eff/n = 1/λ = E[w]² / E[w²] of the Laplace kernel at several τ, from the same distances.

    Args:
        x: Queries [Q, D].
        pool: References [N, D].
        taus: Temperatures, each > 0.

    Returns:
        Shares [Q, len(taus)] in float64, from 1/N (one reference has all the weight) to 1 (equal weights).

    Raises:
        UserError: If an argument is invalid.

    Example:
        >>> effective_share(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]]), taus=(0.01, 100.0))
        tensor([[0.5000, 1.0000]], dtype=torch.float64)
    """
    require_matrices(x=x, pool=pool)
    require_temperatures(taus)
    y = pool.double()
    shares = []
    for some in blocks(x.double(), len(y)):
        d = minus_log_kernel(laplace, some, y, 1.0)
        d -= d.amin(-1, keepdim=True)
        w = torch.empty_like(d)
        weights = (torch.div(d, -tau, out=w).exp_() for tau in taus)
        shares.append(torch.stack([w.sum(-1) ** 2 / torch.linalg.vecdot(w, w) / len(y) for w in weights], -1))
    return torch.cat(shares)


@dataclass(frozen=True)
class Compensation:
    """The shift of τ that would cancel the leading bias at each query (`eq:compensation`)."""

    shift: Tensor
    """[Q] n·Δ: the least-squares solution of ∂T*/∂τ · Δ = g_2/n, times n; it must be the same for all."""
    cosine: Tensor
    """[Q] |cos| of the angle between ∂T*/∂τ and g_2. To compensate, it must be 1."""


def compensation(x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], *, tau: float) -> Compensation:
    """Compute both conditions of `app:temperature` at every query, for the Laplace kernel.

    Args:
        x: Queries [Q, D].
        pool: References [N, D].
        tau: Temperature τ > 0.

    Returns:
        The shift of τ, times n, and the cosine, [Q] each, in float64.

    Raises:
        UserError: If an argument is invalid.
    """
    y = pool.double()
    slopes, g_2s = [], []
    for log_w in _log_weights(x, pool, tau, "laplace"):
        T_star, _, g_2, _ = _moments(log_w, y)
        w_log_w = log_w.exp() * log_w
        slopes.append((w_log_w.mean(-1, keepdim=True) * T_star - w_log_w @ y / len(y)) / tau)  # ∂T*/∂τ
        g_2s.append(g_2)
    slope, g_2 = torch.cat(slopes), torch.cat(g_2s)
    along, size = (slope * g_2).sum(-1), slope.square().sum(-1)
    tiny = torch.finfo(size.dtype).tiny
    return Compensation(
        shift=along / size.clamp_min(tiny),
        cosine=along.abs() / (size * g_2.square().sum(-1)).sqrt().clamp_min(tiny),
    )


def _moments(log_w: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Return T*, m_2, g_2, g_3."""
    w = log_w.exp()
    T_star = w @ y / len(y)
    power, moments = w, []
    for _ in (2, 3):
        power = power * w
        m = power.mean(-1, keepdim=True)
        moments += [m, power @ y / len(y) - m * T_star]
    m_2, g_2, _, g_3 = moments
    return T_star, m_2, g_2, g_3


def _log_weights(x: Tensor, pool: Tensor, tau: float, kernel: str | LogKernel) -> Iterator[Tensor]:
    """Yield log w [some queries, N], where w has mean 1."""
    require_temperature(tau)
    require_matrices(x=x, pool=pool)
    y = pool.double()
    for some in blocks(x.double(), len(y)):
        log_w = minus_log_kernel(log_kernel(kernel), some, y, tau).neg_()
        yield log_w.sub_(log_w.logsumexp(-1, keepdim=True) - math.log(len(y)))
