"""Normalized weights from log-weights: α_i = w_i / Σ_j w_j with l_i = log w_i (`eq:centroid`).

Log-weights are the object; α, p_k = Σ α_i^k and n_eff = 1/p_2 are derived from it. A masked reference has
l = −∞. Nothing is exponentiated before its maximum is subtracted, so Σα = 1 to rounding at any d/τ; a row in
which everything is masked has α = 0 instead of 0/0.
"""

from __future__ import annotations

import math

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.kernels.precision import at_least_float32


def apply_mask(log_w: Float[Tensor, "*#batch n"], mask: Bool[Tensor, "*#batch n"] | None) -> Float[Tensor, "*batch n"]:
    """l in at least float32, with −∞ where `mask` is False, whatever stood there."""
    log_w = at_least_float32(log_w)
    return log_w if mask is None else log_w.masked_fill(~mask, -math.inf)


def normalize(
    log_w: Float[Tensor, "*batch n"], *, nowhere_empty: bool = False
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch 1"]]:
    """(α, log Σw). A row in which everything is masked has α = 0 and the logarithm of `logsumexp`.

    `nowhere_empty` says that there is no such row, which is faster.
    """
    if nowhere_empty:
        alpha = log_w.softmax(-1)
        return alpha, log_w.amax(-1, keepdim=True) - alpha.amax(-1, keepdim=True).log()
    top = _maximum(log_w, -1)
    w = (log_w - top).exp_()
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
    return (log_w - top).exp_().sum(dim, keepdim=True).clamp_min(1).log() + top


def log_softmax(log_w: Tensor, dim: int, *, nowhere_empty: bool = False) -> Tensor:
    """l − log Σ exp(l) along `dim`; −∞ where everything is masked, unless `nowhere_empty` says that this cannot be."""
    return log_w.log_softmax(dim) if nowhere_empty else log_w - logsumexp(log_w, dim)


def leave_one_out_logsumexp(log_w: Tensor, dim: int) -> Tensor:
    """log Σ_{j≠i} exp(l_j) for every i along `dim`, in O(n); −∞ where nothing is left."""
    return logsumexp_and_leave_one_out(log_w, dim)[1]


def logsumexp_and_leave_one_out(log_w: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """`logsumexp`, and `leave_one_out_logsumexp`, for one exponential an entry.

    Only without the largest term, e^t, can the sum be of another magnitude. Let R be the sum of the rest, in units of
    its own largest term e^s. Without the largest the sum is e^s R; without another term w_i, in the same units, it is
    e^t (1 + (R − w_i) e^{s−t}), where the difference may cancel but is then lost beside 1.
    """
    t, top = log_w.max(dim, keepdim=True)
    is_top = _one_hot_max(top, log_w, dim)
    others = log_w.masked_fill(is_top, -math.inf)
    s = _maximum(others, dim)
    w = (others - s).exp()
    R = w.sum(dim, keepdim=True)
    finite_t = t.clamp_min(lowest_finite(log_w))
    ratio = (s - finite_t).exp()
    without_t = torch.where(R > 0, R.clamp_min(1).log() + s, -math.inf)
    without_another = t + torch.log1p((R - w) * ratio)
    return finite_t + torch.log1p(R * ratio), torch.where(is_top, without_t, without_another)


def argmax_mask(log_w: Tensor, dim: int) -> Tensor:
    """True at the largest entry along `dim`, and only at one of them where several are equal."""
    return _one_hot_max(log_w.argmax(dim, keepdim=True), log_w, dim)


def _one_hot_max(index: Tensor, like: Tensor, dim: int) -> Tensor:
    """True at that index along `dim`."""
    return torch.zeros_like(like, dtype=torch.bool).scatter(dim, index, True)


def power_sum(alpha: Float[Tensor, "*batch n"], k: int) -> Float[Tensor, "*batch 1"]:
    """p_k = Σ α_i^k."""
    return alpha.pow(k).sum(-1, keepdim=True)


def effective_sample_size(alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """n_eff = 1 / Σ α_i² (`app:temperature`); 0 for a row in which everything is masked."""
    p_2 = alpha.square().sum(-1)
    return torch.where(p_2 > 0, p_2.clamp_min(torch.finfo(p_2.dtype).tiny).reciprocal(), 0)


def _maximum(log_w: Tensor, dim: int) -> Tensor:
    """The shift before exponentiating: the maximum, or the lowest finite number where everything is masked."""
    return log_w.detach().amax(dim, keepdim=True).clamp_min(lowest_finite(log_w))


def lowest_finite(values: Tensor) -> float:
    """The lowest finite number of the dtype."""
    return torch.finfo(values.dtype).min
