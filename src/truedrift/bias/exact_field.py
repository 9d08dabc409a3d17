"""E[V] without Monte Carlo: the expected drifting field of n positives and m negatives.

With F_n[μ](x) the expectation of a centroid of n references drawn from μ, and row normalization,

    E[V(x)] = F_n[p](x) − F_m[q](x),   F_n[μ] = T*[μ] + bias of n references (`exact`).

As n and m grow, it approaches the population field T*[p] − T*[q], which is 0 at q = p. For finite n ≠ m it does not
vanish there: the leading term of F_n − F_m is −g_2 (1/n − 1/m) for the standard centroid, where g_2 = E[w² (y − T*)]
with E[w] = 1. More positives than negatives push samples outward.

**Matched references** (`centroids.matching`) are windows of s = min(n, m) references on both sides. Each window is s
independent draws, so that E[V] = F_s[p] − F_s[q], which is exactly 0 at q = p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import quadrature
from truedrift.bias.checks import read_sizes, require_points
from truedrift.bias.exact import Moments, exact_moments
from truedrift.centroids.estimator import Estimator
from truedrift.errors import UserError
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.summary import list_numbers, summarize


@dataclass(frozen=True)
class ExactField:
    """The expected field at every query, for every pair of sizes; the result of `exact_field`."""

    n: tuple[int, ...]
    """The numbers of positives."""
    m: tuple[int, ...]
    """The numbers of negatives, one for each n."""
    V: Tensor
    """[Q, len(n), D] E[V]."""
    error: Tensor
    """[Q, len(n)] the estimated error of ‖E[V]‖."""
    T_star_pos: Tensor
    """[Q, D] T*[p], the centroid of the whole pool of positives."""
    T_star_neg: Tensor
    """[Q, D] T*[q], the centroid of the whole pool of negatives."""

    def __repr__(self) -> str:
        return summarize(self, f"mean ‖E[V]‖ {list_numbers(self.V.norm(dim=-1).mean(0).tolist())}")

    @property
    def population(self) -> Tensor:
        """[Q, D] T*[p] − T*[q], the field without subsampling."""
        return self.T_star_pos - self.T_star_neg


def exact_field(
    x: Float[Tensor, "Q D"],
    pool_pos: Float[Tensor, "N D"],
    pool_neg: Float[Tensor, "M D"],
    *,
    tau: float,
    n: int | Sequence[int],
    m: int | Sequence[int],
    estimator: str | Estimator = "abc",
    matched: bool = False,
    kernel: str | LogKernel = "laplace",
    rtol: float = 1e-6,
) -> ExactField:
    """Compute the exact expectation of the drifting field of n positives and m negatives.

    This is the field of `drift` with row normalization and the form "separate". References are drawn with replacement
    from the pools. The query is not among the negatives. Everything is computed in float64 on the CPU.

    Args:
        x: Queries [Q, D].
        pool_pos: The pool [N, D] that positives are drawn from.
        pool_neg: The pool [M, D] that negatives are drawn from. It may be the same tensor, which is the case q = p.
        tau: The temperature of the kernel.
        n: The number of positives, or several.
        m: The number of negatives, one for each n. In a batch of g generated samples it is g − 1.
        estimator: The estimator of both sides: "standard", "abc", "abc2", "jackknife", "br-snis", or a `BRSNIS`.
        matched: Whether both centroids are means over windows of min(n, m) references.
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k.
        rtol: The relative tolerance of the bias of each side.

    Returns:
        The expected field for every pair (n, m), its error, and the field of the population.

    Raises:
        UserError: If an argument is not valid, or τ is so small that the integrals do not fit in memory.

    Example:
        >>> x, pool = torch.zeros(1, 1), torch.tensor([[0.0], [1.0]])
        >>> field = exact_field(x, pool, pool, tau=1.0, n=(8, 64), m=(7, 7))
        >>> [round(v, 4) for v in field.V.flatten().tolist()]
        [-0.0008, -0.0028]
        >>> exact_field(x, pool, pool, tau=1.0, n=(8, 64), m=(7, 7), matched=True).V.flatten().tolist()
        [0.0, 0.0]
    """
    # Check the arguments
    require_points(tau, x=x, pool_pos=pool_pos, pool_neg=pool_neg)
    sizes_pos, sizes_neg = read_sizes(n), read_sizes(m, field="m")
    if len(sizes_pos) != len(sizes_neg):
        problem = f"n has {len(sizes_pos)} sizes and m has {len(sizes_neg)}"
        raise UserError(problem, "they must be pairs", "pass as many m as n")
    windows = [min(pair) for pair in zip(sizes_pos, sizes_neg, strict=True)]
    if matched and min(windows) < 2:
        problem = f"is True with n = {n!r} and m = {m!r}"
        raise UserError(problem, "all must be at least 2", "use more references, or matched=False", field="matched")
    # Compute the bias of both sides, from one pool only once
    used_pos, used_neg = (windows, windows) if matched else (sizes_pos, sizes_neg)
    same = pool_pos.shape == pool_neg.shape and pool_pos.equal(pool_neg)

    def moments(pool: Tensor, sizes: Sequence[int]) -> Moments:
        return exact_moments(x, pool, tau=tau, n=sorted(set(sizes)), estimator=estimator, kernel=kernel, rtol=rtol)

    pos = moments(pool_pos, (*used_pos, *used_neg) if same else used_pos)
    neg = pos if same else moments(pool_neg, used_neg)
    T_star_pos = centroid_of_pool(x, pool_pos, tau, kernel)
    T_star_neg = T_star_pos if same else centroid_of_pool(x, pool_neg, tau, kernel)
    # Select the sizes of every pair: the same size from the same pool cancels exactly
    at_pos, at_neg = [pos.n.index(size) for size in used_pos], [neg.n.index(size) for size in used_neg]
    V = (T_star_pos - T_star_neg).unsqueeze(1) + (pos.bias[:, at_pos] - neg.bias[:, at_neg])
    error = pos.error[:, at_pos] + neg.error[:, at_neg]
    if same:
        error = error.masked_fill(torch.tensor(at_pos) == torch.tensor(at_neg), 0.0)
    return ExactField(sizes_pos, sizes_neg, V, error, T_star_pos, T_star_neg)


def centroid_of_pool(x: Tensor, pool: Tensor, tau: float, kernel: str | LogKernel) -> Float[Tensor, "Q D"]:
    """Compute T* = Σ k(x, y) y / Σ k(x, y) over all points of the pool, in float64."""
    log_k = log_kernel(kernel)
    x, pool = (each.detach().to("cpu", torch.float64) for each in (x, pool))
    return torch.cat([log_k(some, pool, tau).softmax(-1) @ pool for some in quadrature.blocks(x, len(pool))])
