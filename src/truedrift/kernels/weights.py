"""Normalized weights from log-weights: α_i = w_i / Σ_j w_j with l_i = log w_i (`eq:centroid`).

Log-weights are the primary object; α, p_k = Σ α_i^k and n_eff = 1/p_2 are derived from them. A masked reference has
l = −∞. The maximum is always subtracted before exponentiating, so Σα = 1 to rounding at any d/τ. A row in which
everything is masked has α = 0 instead of 0/0.
"""

import math

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.kernels.precision import at_least_float32, can_be_read

DOMINATES_ABOVE = 0.5
"""A reference dominates a row if its weight α exceeds this."""


def apply_mask(log_w: Float[Tensor, "*#batch n"], mask: Bool[Tensor, "*#batch n"] | None) -> Float[Tensor, "*batch n"]:
    """Set l to −∞ where `mask` is False, regardless of its value there.

    Args:
        log_w: Log-weights l [..., n].
        mask: True = use, or None for no mask.

    Returns:
        l [..., n], in at least float32.

    Example:
        >>> apply_mask(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
        tensor([1., -inf])
    """
    log_w = at_least_float32(log_w)
    return log_w if mask is None else log_w.masked_fill(~mask, -math.inf)


def normalize(
    log_w: Float[Tensor, "*batch n"], *, assume_nonempty: bool = False
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch 1"]]:
    """Compute α = softmax(l) and log Σw.

    Args:
        log_w: Log-weights l [..., n], −∞ for a masked reference.
        assume_nonempty: Set to True if every row has a reference that is not masked; this is faster.

    Returns:
        α [..., n] and log Σw [..., 1]. In a row in which everything is masked, α is 0 and the logarithm is the lowest
        finite number.

    Example:
        >>> alpha, log_total = normalize(torch.tensor([3.0, 1.0]).log())
        >>> alpha, log_total.exp()
        (tensor([0.7500, 0.2500]), tensor([4.]))
    """
    if assume_nonempty:
        alpha = log_w.softmax(-1)
        return alpha, log_w.amax(-1, keepdim=True) - alpha.amax(-1, keepdim=True).log()
    top = _finite_maximum(log_w, -1)
    w = (log_w - top).exp_()
    total = w.sum(-1, keepdim=True).clamp_min(1)  # the largest w is 1, so this changes only the 0 of an empty row
    return w / total, total.log() + top


def softmax(log_w: Float[Tensor, "*batch n"], *, assume_nonempty: bool = False) -> Float[Tensor, "*batch n"]:
    """Compute α = softmax(l), with α = 0 in a row in which everything is masked.

    Args:
        log_w: Log-weights l [..., n], −∞ for a masked reference.
        assume_nonempty: Set to True if every row has a reference that is not masked; this is faster.

    Returns:
        α [..., n].

    Example:
        >>> softmax(torch.tensor([[3.0, 1.0], [0.0, 0.0]]).log())
        tensor([[0.7500, 0.2500],
                [0.0000, 0.0000]])
    """
    if assume_nonempty:
        return log_w.softmax(-1)
    # An empty row would be NaN. Where reading is free, look for it first.
    if can_be_read(log_w):
        alpha = log_w.softmax(-1)
        if not math.isnan(alpha.sum().item()):
            return alpha
    # Without −∞ an empty row has equal weights; then its weights are set to 0.
    alpha = log_w.clamp_min(lowest_finite(log_w)).softmax(-1)
    return alpha.masked_fill(log_w == -math.inf, 0)


def logsumexp(log_w: Tensor, dim: int) -> Tensor:
    """Compute log Σ exp(l) along `dim`.

    Args:
        log_w: Log-weights, −∞ for a masked reference.
        dim: The dimension to sum over; it stays as a dimension of size 1.

    Returns:
        log Σ exp(l). If everything is masked, the lowest finite number instead of −∞, because it can be subtracted
        without NaN.

    Example:
        >>> logsumexp(torch.tensor([3.0, 1.0]).log(), -1).exp()
        tensor([4.])
    """
    top = _finite_maximum(log_w, dim)
    return (log_w - top).exp_().sum(dim, keepdim=True).clamp_min(1).log() + top


def log_softmax(log_w: Tensor, dim: int, *, assume_nonempty: bool = False) -> Tensor:
    """Compute l − log Σ exp(l) along `dim`; −∞ where everything is masked, which `assume_nonempty` rules out."""
    return log_w.log_softmax(dim) if assume_nonempty else log_w - logsumexp(log_w, dim)


def logsumexp_and_leave_one_out(log_w: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute `logsumexp`, and log Σ_{j≠i} exp(l_j) for every i along `dim`, with one exponential per entry.

    The second is −∞ where nothing is left. The cost is O(n).

    Only without the largest term, e^t, can the sum be of another magnitude. Let R be the sum of the rest, in units of
    its own largest term e^s. Without the largest term the sum is e^s R; without another term w_i, in the same units,
    it is e^t (1 + (R − w_i) e^{s−t}), where the difference may cancel but is then negligible against 1.
    """
    # Separate the largest term e^t from the others.
    t, top = log_w.max(dim, keepdim=True)
    is_top = _one_hot(top, log_w, dim)
    others = log_w.masked_fill(is_top, -math.inf)
    # Sum the others in units of their own largest term e^s.
    s = _finite_maximum(others, dim)
    w = (others - s).exp()
    R = w.sum(dim, keepdim=True)
    # Combine both magnitudes.
    finite_t = t.clamp_min(lowest_finite(log_w))
    ratio = (s - finite_t).exp()
    without_t = torch.where(R > 0, R.clamp_min(1).log() + s, -math.inf)
    without_another = t + torch.log1p((R - w) * ratio)
    return finite_t + torch.log1p(R * ratio), torch.where(is_top, without_t, without_another)


def argmax_mask(log_w: Tensor, dim: int) -> Tensor:
    """Return True at the largest entry along `dim`, and at only one of them if several are equal."""
    return _one_hot(log_w.argmax(dim, keepdim=True), log_w, dim)


def _one_hot(index: Tensor, like: Tensor, dim: int) -> Tensor:
    """Return a mask in the shape of `like` that is True at `index` along `dim`."""
    return torch.zeros_like(like, dtype=torch.bool).scatter(dim, index, True)


def power_sum(alpha: Float[Tensor, "*batch n"], k: int) -> Float[Tensor, "*batch 1"]:
    """Compute p_k = Σ α_i^k.

    Args:
        alpha: Normalized weights α [..., n].
        k: The power.

    Returns:
        p_k [..., 1].

    Example:
        >>> power_sum(torch.tensor([0.5, 0.5]), 2)
        tensor([0.5000])
    """
    return alpha.pow(k).sum(-1, keepdim=True)


def effective_sample_size(alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """Compute n_eff = 1 / Σ α_i² (`app:temperature`).

    Args:
        alpha: Normalized weights α [..., n].

    Returns:
        n_eff [...], between 1 and n; 0 for a row in which everything is masked.

    Example:
        >>> effective_sample_size(torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]))
        tensor([4., 1.])
    """
    p_2 = alpha.square().sum(-1)
    return torch.where(p_2 > 0, p_2.clamp_min(torch.finfo(p_2.dtype).tiny).reciprocal(), 0)


def _finite_maximum(log_w: Tensor, dim: int) -> Tensor:
    """Return the shift before exponentiating: the maximum, or the lowest finite number where everything is masked."""
    return log_w.detach().amax(dim, keepdim=True).clamp_min(lowest_finite(log_w))


def lowest_finite(values: Tensor) -> float:
    """Return the lowest finite number of the dtype."""
    return torch.finfo(values.dtype).min
