"""Normalized weights from log-weights: α_i = w_i / Σ_j w_j with l_i = log w_i (`eq:centroid`).

Log-weights are the object; α, p_k = Σ α_i^k and n_eff = 1/p_2 are derived from it. A masked reference has
l = −∞. Nothing is exponentiated before its maximum is subtracted, so Σα = 1 to rounding at any d/τ; a row in
which everything is masked has α = 0 instead of 0/0.
"""

from __future__ import annotations

import math

import torch

from truedrift.axes import Bool, Float, Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """float16 and bfloat16 widened to float32: at τ = 0.02 a bfloat16 log-weight is wrong by 15 %."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def masked(log_w: Float[Tensor, "*batch n"], mask: Bool[Tensor, "*mask n"] | None) -> Float[Tensor, "*batch n"]:
    """l in at least float32, with −∞ where `mask` is False, whatever stood there."""
    log_w = at_least_float32(log_w)
    return log_w if mask is None else log_w.masked_fill(~mask, -math.inf)


def normalize(log_w: Float[Tensor, "*batch n"]) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch 1"]]:
    """(α, log Σw); (0, −∞) for a row in which everything is masked."""
    top = _finite_maximum(log_w, -1)
    w = (log_w - top).exp()
    total = w.sum(-1, keepdim=True)  # ≥ 1, because the largest w is 1; 0 for an empty row
    return w / total.clamp_min(1), _log(total) + top


def softmax(log_w: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """α = softmax(l), and 0 for a row in which everything is masked."""
    return normalize(log_w)[0]


def logsumexp(log_w: Tensor, dim: int) -> Tensor:
    """log Σ exp(l) along `dim`, kept as a dimension of size 1; −∞ where everything is masked."""
    top = _finite_maximum(log_w, dim)
    return _log((log_w - top).exp().sum(dim, keepdim=True)) + top


def leave_one_out_logsumexp(log_w: Tensor, dim: int) -> Tensor:
    """log Σ_{j≠i} exp(l_j) for every i along `dim`, in O(n).

    Subtracting one term from the sum is safe while the term holds at most half of it: log Σ + log1p(−share). Only
    the largest term can hold more, and for that one the others are summed afresh.
    """
    top = log_w.argmax(dim, keepdim=True)
    is_top = torch.zeros_like(log_w, dtype=torch.bool).scatter(dim, top, torch.ones_like(top, dtype=torch.bool))
    total = logsumexp(log_w, dim)
    share = (log_w - total.clamp_min(torch.finfo(log_w.dtype).min)).masked_fill(is_top, -math.inf).exp()
    without_top = logsumexp(log_w.masked_fill(is_top, -math.inf), dim)
    return torch.where(is_top, without_top, total + torch.log1p(-share))


def power_sum(alpha: Float[Tensor, "*batch n"], k: int) -> Float[Tensor, "*batch 1"]:
    """p_k = Σ α_i^k."""
    return alpha.pow(k).sum(-1, keepdim=True)


def effective_sample_size(alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """n_eff = 1 / Σ α_i² (`app:temperature`); 0 for a row in which everything is masked."""
    p_2 = alpha.square().sum(-1)
    return torch.where(p_2 > 0, p_2.clamp_min(torch.finfo(p_2.dtype).tiny).reciprocal(), 0)


def _finite_maximum(log_w: Tensor, dim: int) -> Tensor:
    """The shift before exponentiating: the maximum, or the lowest number where everything is masked."""
    return log_w.detach().amax(dim, keepdim=True).clamp_min(torch.finfo(log_w.dtype).min)


def _log(total: Tensor) -> Tensor:
    """log t, and −∞ with gradient 0, instead of NaN, at t = 0."""
    empty = total == 0
    return total.masked_fill(empty, 1).log().masked_fill(empty, -math.inf)
