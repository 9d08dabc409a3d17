"""The jackknife T = n T_n − (n − 1) mean_i T_{n,−i} (`app:baselines`), as weights:

    γ_j = n α_j − ((n − 1)/n) Σ_{i≠j} α_j / (1 − α_i).

With 1/(1 − α_i) = 1 + o_i and the odds o_i = α_i/(1 − α_i), the multiples of n cancel on paper instead of in digits:

    γ_j = α_j (2 − 1/n) − (1 − 1/n) α_j Σ_{i≠j} o_i.

Only the largest weight can exceed ½, and only its odds can be 0/0 in digits. Its term is α_j o_top = α_top β_j, where β
are the weights of the references without it, normalized by their own largest. n counts the references that are not
masked; at n = 1 it is the identity. γ can be negative: it leaves the convex hull.

The bootstrap correction T = 2 T_n − mean_b T*_b (`app:baselines`), as weights:

    γ_i = 2 α_i − mean_b c_bi w_i / Σ_j c_bj w_j,   c_b ~ Multinomial(n; 1/n, …, 1/n).

A resample is normalized by its own largest weight, so that one without the dominating reference is not a sum that has
underflowed. Only references that are not masked are drawn, as many as there are.

BR-SNIS: bias-reduced self-normalized importance sampling by an i-SIR chain (`app:baselines`).

The m = K(n − 1) + 1 references are a first state and K blocks of n − 1. Iteration k puts the state and block k
into a pool of n, computes the weights of that pool, and draws the next state from them. γ is the mean of the pool
weights over the iterations after `burn_in`, scattered to the m references. The state forgets its start at rate
O(1/n) an iteration, so the bias is O(n^−(burn_in + 1)).

A laboratory estimator: it needs about K times the references of the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError
from truedrift.kernels.precision import cast_like, to_widest
from truedrift.kernels.weights import apply_mask, argmax_mask, softmax


@dataclass(frozen=True)
class Jackknife:
    """γ = n α − ((n − 1)/n) Σ_i (weights without i)."""

    name: str = "jackknife"
    bias_order: int = 2

    def budget(self, n: int) -> int:
        """n: nothing is drawn beyond the references given."""
        return n

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        """γ_j = α_j (2 − 1/n − (1 − 1/n) Σ_{i≠j} o_i)."""
        is_top, log_w_wide = argmax_mask(log_w, -1), to_widest(log_w)
        alpha = softmax(log_w_wide)
        beta = softmax(log_w_wide.masked_fill(is_top, -math.inf))
        alpha_top = alpha.amax(-1, keepdim=True)
        below = alpha.masked_fill(is_top, 0)
        odds = below / (1 - below)
        n = (log_w > -math.inf).sum(-1, keepdim=True).clamp_min(1).to(alpha.dtype)
        others = alpha * (odds.sum(-1, keepdim=True) - odds) + alpha_top * beta  # α_j Σ_{i≠j} o_i
        return cast_like((2 - 1 / n) * alpha - (1 - 1 / n) * others, log_w)


@dataclass(frozen=True)
class Bootstrap:
    """γ = 2α − the mean weight over `resamples` draws with replacement."""

    resamples: int = 100
    name: str = "bootstrap"
    bias_order: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.resamples, int) or self.resamples < 1:
            raise UserError(f"resamples is {self.resamples!r}", "allowed is an integer from 1", "the paper takes 100")

    def budget(self, n: int) -> int:
        """n: resamples reuse the references given."""
        return n

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        log_w_wide = to_widest(log_w)
        counts = self._counts(log_w > -math.inf, log_w_wide.dtype, generator)
        resampled = counts * softmax(apply_mask(log_w_wide, counts > 0))
        resampled = resampled / resampled.sum(-1, keepdim=True).clamp_min(1)  # at least 1, but 0 for an empty row
        return cast_like(2 * softmax(log_w_wide) - resampled.mean(0), log_w)

    def _counts(self, drawn: Tensor, dtype: torch.dtype, generator: torch.Generator | None) -> Tensor:
        """c [resamples, ..., n]: how often each of the n drawn references is drawn again in n draws."""
        n = drawn.sum(-1, keepdim=True)
        uniform = torch.rand((self.resamples, *drawn.shape), dtype=dtype, device=drawn.device, generator=generator)
        rank = (uniform * n).long().minimum(n - 1).clamp_min(0)
        column = drawn.long().argsort(dim=-1, descending=True, stable=True)  # the drawn ones first, in their order
        again = column.expand_as(rank).gather(-1, rank)
        draws = (torch.arange(drawn.shape[-1], device=drawn.device) < n).to(dtype).expand_as(uniform)
        return torch.zeros_like(uniform).scatter_add(-1, again, draws)


@dataclass(frozen=True)
class BRSNIS:
    """γ = mean over k ≥ burn_in of the weights of pool k."""

    iterations: int = 10
    burn_in: int = 1
    name: str = "br-snis"

    def __post_init__(self) -> None:
        whole = isinstance(self.burn_in, int) and isinstance(self.iterations, int)
        if not whole or not 0 <= self.burn_in < self.iterations:
            raise UserError(
                f"burn_in is {self.burn_in!r} of {self.iterations!r} iterations",
                "allowed are integers with 0 ≤ burn_in < iterations",
                "the paper takes 1 of 10",
            )

    @property
    def bias_order(self) -> int:
        """burn_in + 1."""
        return self.burn_in + 1

    def budget(self, n: int) -> int:
        """m = K(n − 1) + 1."""
        return self.iterations * (n - 1) + 1

    def reweight(self, log_w: Float[Tensor, "*batch m"], generator: torch.Generator | None = None) -> Tensor:
        fresh, log_w_wide = self._fresh(log_w.shape[-1]), to_widest(log_w)
        state = torch.zeros_like(log_w[..., :1], dtype=torch.long)
        kept = torch.zeros_like(log_w_wide)
        for k in range(self.iterations):
            block = torch.arange(1 + k * fresh, 1 + (k + 1) * fresh, device=log_w.device)
            pool = torch.cat((state, block.expand(*log_w.shape[:-1], fresh)), -1)
            alpha = softmax(log_w_wide.gather(-1, pool))
            if k >= self.burn_in:
                kept = kept.scatter_add(-1, pool, alpha)
            state = pool.gather(-1, _draw(alpha, generator))
        # Every pool adds 1, or 0 if all of it is masked.
        return cast_like(kept / kept.sum(-1, keepdim=True).clamp_min(1), log_w)

    def _fresh(self, m: int) -> int:
        """n − 1 of m = K(n − 1) + 1."""
        fresh, rest = divmod(m - 1, self.iterations)
        if rest:
            below, above = self.iterations * fresh + 1, self.iterations * (fresh + 1) + 1
            raise UserError(
                f"br-snis was given {m} references",
                f"allowed is iterations·(n − 1) + 1 with {self.iterations} iterations",
                f"pass {below} or {above}",
            )
        return fresh


def _draw(alpha: Tensor, generator: torch.Generator | None) -> Tensor:
    """An index ∝ α: the first to arrive of exponential clocks with rates α, and the state where all are 0."""
    clock = torch.empty_like(alpha).exponential_(generator=generator).clamp_min(torch.finfo(alpha.dtype).tiny)
    return (alpha.detach() / clock).argmax(-1, keepdim=True)
