"""Bias corrections by resampling, the baselines of the paper (`app:baselines`), written as weights γ.

**Jackknife**, T = n T_n − (n − 1) mean_i T_{n,−i}:

    γ_j = n α_j − ((n − 1)/n) Σ_{i≠j} α_j / (1 − α_i).

With 1/(1 − α_i) = 1 + o_i and the odds o_i = α_i/(1 − α_i), the multiples of n cancel algebraically:

    γ_j = α_j (2 − 1/n) − (1 − 1/n) α_j Σ_{i≠j} o_i.

Only the largest weight can exceed ½, and only its odds can be 0/0 in floating point. Its term is α_j o_top = α_top β_j,
where β are the normalized weights of the other references, computed relative to their own largest. n counts the
references that are not masked; at n = 1 the jackknife is the identity. γ can be negative, so T can leave the convex
hull.

**Bootstrap**, T = 2 T_n − mean_b T*_b:

    γ_i = 2 α_i − mean_b c_bi w_i / Σ_j c_bj w_j,   c_b ~ Multinomial(n; 1/n, …, 1/n).

Each resample is normalized by its own largest weight, so that the sum of a resample without the dominant reference does
not underflow. Only references that are not masked are drawn, and as many as there are.

**BR-SNIS**, bias-reduced self-normalized importance sampling by an i-SIR chain. The m = K(n − 1) + 1 references are a
first state and K blocks of n − 1. Iteration k puts the state and block k into a pool of n, computes the weights of that
pool, and draws the next state from them. γ is the mean of the pool weights over the iterations after `burn_in`,
scattered to the m references. The influence of the first state falls by a factor O(1/n) per iteration, so the bias is
O(n^−(burn_in + 1)). BR-SNIS is for studies, not for training: it needs about K times as many references as the others.
"""

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.estimator import Estimator
from truedrift.errors import UserError, require_integer
from truedrift.kernels.precision import cast_like, to_widest
from truedrift.kernels.weights import apply_mask, argmax_mask, softmax


@dataclass(frozen=True)
class Jackknife(Estimator):
    """The jackknife correction: γ = n α − ((n − 1)/n) Σ_i (weights without i)."""

    name: str = "jackknife"
    bias_order: int = 2

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        """Return γ_j = α_j (2 − 1/n − (1 − 1/n) Σ_{i≠j} o_i)."""
        # α, and the weights β without the largest reference.
        is_top, log_w_wide = argmax_mask(log_w, -1), to_widest(log_w)
        alpha = softmax(log_w_wide)
        beta = softmax(log_w_wide.masked_fill(is_top, -math.inf))
        # The odds of all references but the largest.
        alpha_top = alpha.amax(-1, keepdim=True)
        below = alpha.masked_fill(is_top, 0)
        odds = below / (1 - below)
        n = (log_w > -math.inf).sum(-1, keepdim=True).clamp_min(1).to(alpha.dtype)
        others = alpha * (odds.sum(-1, keepdim=True) - odds) + alpha_top * beta  # α_j Σ_{i≠j} o_i
        return cast_like((2 - 1 / n) * alpha - (1 - 1 / n) * others, log_w)


@dataclass(frozen=True)
class Bootstrap(Estimator):
    """The bootstrap correction: γ = 2α − the mean weights of resamples drawn with replacement.

    Args:
        resamples: The number of resamples, 100 in the paper.
    """

    resamples: int = 100
    name: str = "bootstrap"
    bias_order: int = 2

    def __post_init__(self) -> None:
        require_integer("resamples", self.resamples, 1, 100)

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        log_w_wide = to_widest(log_w)
        counts = self._counts(log_w > -math.inf, log_w_wide.dtype, generator)
        resampled = counts * softmax(apply_mask(log_w_wide, counts > 0))
        resampled = resampled / resampled.sum(-1, keepdim=True).clamp_min(1)  # at least 1, but 0 for an empty row
        return cast_like(2 * softmax(log_w_wide) - resampled.mean(0), log_w)

    def _counts(self, drawn: Tensor, dtype: torch.dtype, generator: torch.Generator | None) -> Tensor:
        """Return c [resamples, ..., n]: how often each of the n available references occurs in n draws."""
        n = drawn.sum(-1, keepdim=True)
        uniform = torch.rand((self.resamples, *drawn.shape), dtype=dtype, device=drawn.device, generator=generator)
        rank = (uniform * n).long().minimum(n - 1).clamp_min(0)
        column = drawn.long().argsort(dim=-1, descending=True, stable=True)  # the drawn ones first, in their order
        again = column.expand_as(rank).gather(-1, rank)
        draws = (torch.arange(drawn.shape[-1], device=drawn.device) < n).to(dtype).expand_as(uniform)
        return torch.zeros_like(uniform).scatter_add(-1, again, draws)


@dataclass(frozen=True)
class BRSNIS(Estimator):
    """Bias-reduced self-normalized importance sampling: γ = mean over k ≥ burn_in of the weights of pool k.

    Args:
        iterations: The number K of iterations, 10 in the paper.
        burn_in: The number of iterations left out at the start, 1 in the paper.
    """

    iterations: int = 10
    burn_in: int = 1
    name: str = "br-snis"

    def __post_init__(self) -> None:
        integers = isinstance(self.burn_in, int) and isinstance(self.iterations, int)
        if not integers or not 0 <= self.burn_in < self.iterations:
            problem = f"is {self.burn_in!r} with iterations = {self.iterations!r}"
            allowed = "must be integers with 0 ≤ burn_in < iterations"
            raise UserError(problem, allowed, "pass for example burn_in=1, iterations=10", field="burn_in")

    @property
    def bias_order(self) -> int:
        """k = burn_in + 1 of the bias O(n^−k)."""
        return self.burn_in + 1

    def budget(self, n: int) -> int:
        """Return m = K(n − 1) + 1."""
        return self.iterations * (n - 1) + 1

    def reweight(self, log_w: Float[Tensor, "*batch m"], generator: torch.Generator | None = None) -> Tensor:
        fresh, log_w_wide = self._block_size(log_w.shape[-1]), to_widest(log_w)
        state = torch.zeros_like(log_w[..., :1], dtype=torch.long)
        total = torch.zeros_like(log_w_wide)
        for k in range(self.iterations):
            # The pool of this iteration: the state and a block of fresh references.
            block = torch.arange(1 + k * fresh, 1 + (k + 1) * fresh, device=log_w.device)
            pool = torch.cat((state, block.expand(*log_w.shape[:-1], fresh)), -1)
            alpha = softmax(log_w_wide.gather(-1, pool))
            if k >= self.burn_in:
                total = total.scatter_add(-1, pool, alpha)
            # Draw the next state.
            state = pool.gather(-1, _draw(alpha, generator))
        # Every pool adds 1, or 0 if all of it is masked.
        return cast_like(total / total.sum(-1, keepdim=True).clamp_min(1), log_w)

    def _block_size(self, m: int) -> int:
        """Return the n − 1 for which m = K(n − 1) + 1."""
        fresh, rest = divmod(m - 1, self.iterations)
        if rest:
            below, above = self.iterations * fresh + 1, self.iterations * (fresh + 1) + 1
            allowed = f"must be iterations·(n − 1) + 1 with iterations = {self.iterations}"
            raise UserError(f"br-snis was given {m} references", allowed, f"pass {below} or {above}")
        return fresh


def _draw(alpha: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index with probability ∝ α: the first of exponential clocks with rates α, or the state if all are 0."""
    clock = torch.empty_like(alpha).exponential_(generator=generator).clamp_min(torch.finfo(alpha.dtype).tiny)
    return (alpha.detach() / clock).argmax(-1, keepdim=True)
