"""BR-SNIS: bias-reduced self-normalized importance sampling by an i-SIR chain (`app:baselines`).

The m = K(n − 1) + 1 references are a first state and K blocks of n − 1. Iteration k puts the state and block k
into a pool of n, computes the weights of that pool, and draws the next state from them. γ is the mean of the pool
weights over the iterations after `burn_in`, scattered to the m references. The state forgets its start at rate
O(1/n) an iteration, so the bias is O(n^−(burn_in + 1)).

A laboratory estimator: it needs about K times the references of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.base import rounded
from truedrift.kernels.distance import wide
from truedrift.kernels.weights import softmax
from truedrift.validation import mistake


@dataclass(frozen=True)
class BRSNIS:
    """γ = mean over k ≥ burn_in of the weights of pool k."""

    iterations: int = 10
    burn_in: int = 1
    name: str = "br-snis"

    def __post_init__(self) -> None:
        whole = isinstance(self.burn_in, int) and isinstance(self.iterations, int)
        if not whole or not 0 <= self.burn_in < self.iterations:
            raise mistake(
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
        fresh, log_w_wide = self._fresh(log_w.shape[-1]), wide(log_w)
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
        return rounded(kept / kept.sum(-1, keepdim=True).clamp_min(1), log_w)

    def _fresh(self, m: int) -> int:
        """n − 1 of m = K(n − 1) + 1."""
        fresh, rest = divmod(m - 1, self.iterations)
        if rest:
            below, above = self.iterations * fresh + 1, self.iterations * (fresh + 1) + 1
            raise mistake(
                f"br-snis was given {m} references",
                f"allowed is iterations·(n − 1) + 1 with {self.iterations} iterations",
                f"pass {below} or {above}",
            )
        return fresh


def _draw(alpha: Tensor, generator: torch.Generator | None) -> Tensor:
    """An index ∝ α: the first to arrive of exponential clocks with rates α, and the state where all are 0."""
    clock = torch.empty_like(alpha).exponential_(generator=generator).clamp_min(torch.finfo(alpha.dtype).tiny)
    return (alpha.detach() / clock).argmax(-1, keepdim=True)
