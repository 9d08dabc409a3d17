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


def masked(log_w: Float[Tensor, "*#batch n"], mask: Bool[Tensor, "*#batch n"] | None) -> Float[Tensor, "*batch n"]:
    """l in at least float32, with −∞ where `mask` is False, whatever stood there."""
    log_w = at_least_float32(log_w)
    return log_w if mask is None else log_w.masked_fill(~mask, -math.inf)


def normalize(log_w: Float[Tensor, "*batch n"]) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch 1"]]:
    """(α, log Σw). A row in which everything is masked has α = 0 and the logarithm of `logsumexp`."""
    top = _maximum(log_w, -1)
    w = (log_w - top).exp()
    total = w.sum(-1, keepdim=True).clamp_min(1)  # the largest w is 1, so this changes only the 0 of an empty row
    return w / total, total.log() + top


def softmax(log_w: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """α = softmax(l), and 0 for a row in which everything is masked."""
    return normalize(log_w)[0]


def logsumexp(log_w: Tensor, dim: int) -> Tensor:
    """log Σ exp(l) along `dim`, kept as a dimension of size 1.

    Where everything is masked it is the lowest finite number instead of −∞: below everything, yet safe to subtract.
    """
    top = _maximum(log_w, dim)
    return (log_w - top).exp().sum(dim, keepdim=True).clamp_min(1).log() + top


def leave_one_out_logsumexp(log_w: Tensor, dim: int) -> Tensor:
    """log Σ_{j≠i} exp(l_j) for every i along `dim`, in O(n); −∞ where nothing is left.

    Subtracting one term from the sum is safe while the term holds at most half of it: log Σ + log1p(−share). Only
    the largest term can hold more, and for that one the others are summed afresh.
    """
    is_top = largest(log_w, dim)
    others = log_w.masked_fill(is_top, -math.inf)
    total, without_top = logsumexp(log_w, dim), logsumexp(others, dim)
    rest = torch.log1p(-(others - total).exp())
    total, without_top = (s.masked_fill(s <= lowest(log_w), -math.inf) for s in (total, without_top))
    return torch.where(is_top, without_top, total + rest)


def largest(log_w: Tensor, dim: int) -> Tensor:
    """True at the largest entry along `dim`, and only at one of them where several are equal."""
    top = log_w.argmax(dim, keepdim=True)
    return torch.zeros_like(log_w, dtype=torch.bool).scatter(dim, top, torch.ones_like(top, dtype=torch.bool))


def power_sum(alpha: Float[Tensor, "*batch n"], k: int) -> Float[Tensor, "*batch 1"]:
    """p_k = Σ α_i^k."""
    return alpha.pow(k).sum(-1, keepdim=True)


def effective_sample_size(alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """n_eff = 1 / Σ α_i² (`app:temperature`); 0 for a row in which everything is masked."""
    p_2 = alpha.square().sum(-1)
    return torch.where(p_2 > 0, p_2.clamp_min(torch.finfo(p_2.dtype).tiny).reciprocal(), 0)


def _maximum(log_w: Tensor, dim: int) -> Tensor:
    """The shift before exponentiating: the maximum, or the lowest finite number where everything is masked."""
    return log_w.detach().amax(dim, keepdim=True).clamp_min(lowest(log_w))


def lowest(values: Tensor) -> float:
    """The lowest finite number of the dtype."""
    return torch.finfo(values.dtype).min
