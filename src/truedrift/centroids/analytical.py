"""Analytical bias correction: γ_i = α_i (1 − p_2 + α_i), p_k = Σ α_i^k (`eq:abc`).

The leading bias of the plain centroid is −E[w²(y − T*)] / (n E[w]²) (`thm:ratio_bias`). Its plug-in from the same
minibatch is Δ_n = Σ α_i² (T − y_i) (`eq:delta`); subtracting it leaves a bias of O(n⁻²) (`thm:abc`), a total
variance that is unchanged to first order (`prop:variance`) and a point of the convex hull (`prop:convex`).

**Order 2.** With D_k = Σ α_i^k y_i − p_k T, the bias that ABC leaves is (3 m_2 g_2 − 2 g_3)/n² + O(n⁻³), where
m_k = E[w^k], g_k = E[w^k (y − T*)] at E[w] = 1, and its plug-in is 3 p_2 D_2 − 2 D_3. Subtracting that as well,

    T + (1 − 3p_2) D_2 + 2 D_3,   γ_i = α_i (1 − p_2 + 3p_2² − 2p_3 + (1 − 3p_2) α_i + 2 α_i²),   bias O(n⁻³).

It stays in the hull: p_3 ≤ p_2^{3/2}, and the quadratic in α_i is at least −max(0, 3p_2 − 1)²/8, so the bracket is
at least min_p 1 − p + 3p² − 2p^{3/2} − max(0, 3p − 1)²/8 = 0.4428… > 0. It is *not* better at small n:
where one or two references hold the weight its bias is about that of order 1, or larger.

**Strata.** References drawn as n_s from each of several pools s (classifier-free guidance: generated ones and
unconditional real ones) have the leading bias of `thm:ratio_bias` less what the fixed n_s take away. With
A_s = Σ_{i∈s} α_i,

    γ_i = α_i (1 − p_2 + α_i) − α_i (A_{s(i)}/n_{s(i)} − Σ_s A_s²/n_s).

One stratum gives ABC. It stays in the hull: with a = A_{s(i)} and m = n_{s(i)}, Σ_{j∈s} α_j² ≤ a² and
Σ_{others} A_s² ≤ (1 − a)² give γ_i/α_i ≥ a(1 − a)(2 − 1/m) + α_i ≥ 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift.axes import Bool, Float, Int, Tensor
from truedrift.centroids.estimator import AlphaEstimator
from truedrift.errors import UserError, require_broadcastable, require_mask, require_weights
from truedrift.kernels.precision import at_least_float32, cast_like, to_widest
from truedrift.kernels.weights import power_sum, softmax


def abc_weights(
    alpha: Float[Tensor, "*batch n"],
    order: int = 1,
    strata: Int[Tensor, " n"] | None = None,
    *,
    mask: Bool[Tensor, "*mask n"] | None = None,
) -> Float[Tensor, "*batch n"]:
    """γ_i = α_i (1 − p_2 + α_i): the corrected weights for normalized weights α (`eq:abc`).

    `order=2` is ABC-2. `strata` names the pool of each reference and gives stratified ABC; `mask` then says which
    references were drawn (True), since a weight of zero does not tell. Computed in at least float32 and returned
    in the dtype of `alpha`, so that `abc_weights(alpha) @ y` replaces `alpha @ y`.

    A reference that is given twice counts as two draws: copies change p_2 and so the correction.
    """
    if order not in (1, 2):
        raise UserError(f"order is {order!r}", "allowed are 1 (ABC) and 2 (ABC-2)", "choose one of them")
    require_weights("alpha", alpha)
    a = at_least_float32(alpha)
    if strata is None:
        if mask is not None:
            raise UserError("mask is given without strata", "allowed is both or strata alone", "leave mask out")
        return (_order_1(a) if order == 1 else _order_2(a)).to(alpha.dtype)
    if order == 2:
        raise UserError("order is 2 with strata", "the stratified correction is of order 1", "drop one of the two")
    if mask is None:
        drawn = torch.ones_like(a, dtype=torch.bool)
    else:
        require_mask(mask, alpha.shape[-1], f"[..., {alpha.shape[-1]}]")
        require_broadcastable("alpha, mask", alpha.shape[:-1], mask.shape[:-1])
        drawn = mask
    return _stratified(a, strata, drawn).to(alpha.dtype)


def _order_1(alpha: Tensor) -> Tensor:
    # α (1 − p_2) + α²: the square is needed for p_2 anyway.
    squared = alpha.square()
    return torch.addcmul(squared, alpha, 1 - squared.sum(-1, keepdim=True))


def _order_2(alpha: Tensor) -> Tensor:
    p_2, p_3 = power_sum(alpha, 2), power_sum(alpha, 3)
    constant = 1 - p_2 + 3 * p_2.square() - 2 * p_3
    return alpha * (constant + alpha * (1 - 3 * p_2 + 2 * alpha))


def _stratified(alpha: Tensor, strata: Tensor, drawn: Tensor) -> Tensor:
    if not isinstance(strata, Tensor) or strata.shape != alpha.shape[-1:]:
        came = f"has shape {list(strata.shape)}" if isinstance(strata, Tensor) else f"is a {type(strata).__name__}"
        raise UserError(f"strata {came}", f"allowed is a tensor [{alpha.shape[-1]}]", "give one id a reference")
    together = (strata.unsqueeze(-1) == strata).to(alpha.dtype)  # [n, n]: one product sums every stratum at once
    with torch.autocast(alpha.device.type, enabled=False):
        A = alpha @ together
        n = (drawn.to(alpha.dtype) @ together).clamp_min(1)
    excess = A / n - (alpha * A / n).sum(-1, keepdim=True)  # Σ_i α_i A_{s(i)}/n_{s(i)} = Σ_s A_s²/n_s
    return alpha * (_one_minus_p2(alpha) + alpha - excess)


def _one_minus_p2(alpha: Tensor) -> Tensor:
    """1 − p_2 = ((Σα)² − Σα²) / (Σα)², summed in float64: it cancels where one weight dominates."""
    a = to_widest(alpha)
    squared = a.sum(-1, keepdim=True).square().clamp_min(torch.finfo(a.dtype).tiny)  # 0 where everything is masked
    return (1 - a.square().sum(-1, keepdim=True) / squared).to(alpha.dtype)


@dataclass(frozen=True)
class ABC(AlphaEstimator):
    """γ_i = α_i (1 − p_2 + α_i) (`eq:abc`)."""

    name: str = "abc"
    bias_order: int = 2

    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return _order_1(alpha)


@dataclass(frozen=True)
class ABC2(AlphaEstimator):
    """γ_i = α_i (1 − p_2 + 3p_2² − 2p_3 + (1 − 3p_2) α_i + 2α_i²), the second order."""

    name: str = "abc2"
    bias_order: int = 3

    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return _order_2(alpha)


@dataclass(frozen=True, eq=False)
class StratifiedABC:
    """γ_i = α_i (1 − p_2 + α_i) − α_i (A_{s(i)}/n_{s(i)} − Σ_s A_s²/n_s); `strata` [n] names each reference's pool."""

    strata: Tensor
    name: str = "stratified-abc"
    bias_order: int = 2

    def budget(self, n: int) -> int:
        """n: nothing is drawn beyond the references given."""
        return n

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        gamma = _stratified(softmax(to_widest(log_w)), self.strata.to(log_w.device), log_w > -torch.inf)
        return cast_like(gamma, log_w)
