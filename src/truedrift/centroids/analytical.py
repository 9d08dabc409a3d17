"""Analytical bias correction (ABC): γ_i = α_i (1 − p_2 + α_i), p_k = Σ α_i^k (`eq:abc`).

The leading bias of the plain centroid is −E[w²(y − T*)] / (n E[w]²) (`thm:ratio_bias`). Its plug-in from the same
minibatch is Δ_n = Σ α_i² (T − y_i) (`eq:delta`); subtracting it leaves a bias of O(n⁻²) (`thm:abc`), a total
variance that is unchanged to first order (`prop:variance`) and a point of the convex hull (`prop:convex`).

**Order 2.** With D_k = Σ α_i^k y_i − p_k T, the bias that ABC leaves is (3 m_2 g_2 − 2 g_3)/n² + O(n⁻³), where
m_k = E[w^k], g_k = E[w^k (y − T*)] at E[w] = 1, and its plug-in is 3 p_2 D_2 − 2 D_3. Subtracting that as well,

    T + (1 − 3p_2) D_2 + 2 D_3,   γ_i = α_i (1 − p_2 + 3p_2² − 2p_3 + (1 − 3p_2) α_i + 2 α_i²),   bias O(n⁻³).

It stays in the hull: p_3 ≤ p_2^{3/2}, and the quadratic in α_i is at least −max(0, 3p_2 − 1)²/8, so the bracket is
at least min_p 1 − p + 3p² − 2p^{3/2} − max(0, 3p − 1)²/8 = 0.4428… > 0. It is *not* better at small n: where one or two
references have most of the weight, its bias is similar to that of order 1, or larger.

**Strata.** If n_s references are drawn from each of several pools s (classifier-free guidance: generated samples and
unconditional real samples), the fixed n_s reduce the leading bias of `thm:ratio_bias`. With A_s = Σ_{i∈s} α_i,

    γ_i = α_i (1 − p_2 + α_i) − α_i (A_{s(i)}/n_{s(i)} − Σ_s A_s²/n_s).

One stratum gives ABC. It stays in the hull: with a = A_{s(i)} and m = n_{s(i)}, Σ_{j∈s} α_j² ≤ a² and
Σ_{others} A_s² ≤ (1 − a)² give γ_i/α_i ≥ a(1 − a)(2 − 1/m) + α_i ≥ 0.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from truedrift.axes import Bool, Float, Int, Tensor
from truedrift.centroids.estimator import Coefficients, Estimator, PolynomialEstimator
from truedrift.errors import UserError, short_repr
from truedrift.kernels.precision import at_least_float32, can_be_read, cast_like, to_widest
from truedrift.kernels.weights import softmax
from truedrift.tensor_checks import require_broadcastable, require_features, require_mask

Array = TypeVar("Array")
"""A tensor, or an array of NumPy, JAX or another library with the operators of the array API."""

SUM_TOLERANCE = 1e-3
"""Largest deviation of Σα from 1 that counts as rounding; in 16 bits it is 0.05."""


def abc_weights(alpha: Array, order: int = 1, strata: Any = None, *, mask: Any = None) -> Array:
    """Correct normalized weights: γ_i = α_i (1 − p_2 + α_i) (`eq:abc`).

    `abc_weights(alpha) @ y` replaces `alpha @ y`. A reference that occurs twice counts as two draws: copies change p_2
    and therefore the correction.

    Args:
        alpha: Normalized weights α [..., n] with Σα = 1: a tensor, or an array of NumPy, JAX or another library. A row
            of zeros, in which everything is masked, is allowed. That weights are not negative and sum to 1 is
            checked where reading them costs nothing: not on a GPU, and not in compiled or traced code.
        order: 1 for ABC, 2 for ABC-2.
        strata: The pool [n] that each reference was drawn from, as integers. Gives stratified ABC. Tensors only.
        mask: Which references were drawn (True), [..., n]. Allowed only with `strata`: the number of draws per
            pool is needed, and a weight of zero does not show whether a reference was drawn.

    Returns:
        γ [..., n] with Σγ = 1, computed in at least float32 and returned in the dtype of `alpha`. An array gives an
        array of its own library.

    Raises:
        UserError: If an argument is invalid, if the arguments contradict each other, or if the weights are not
            normalized.

    Example:
        >>> import torch
        >>> from truedrift import abc_weights
        >>> alpha = torch.tensor([0.5, 0.25, 0.25])
        >>> abc_weights(alpha)
        tensor([0.5625, 0.2188, 0.2188])
    """
    if type(order) is not int or order not in (1, 2):
        raise UserError(f"is {short_repr(order)}", "must be 1 (ABC) or 2 (ABC-2)", "choose one of these", field="order")
    correct: Any = _correct_tensor if isinstance(alpha, Tensor) else _correct_array
    return correct(alpha, order, strata, mask)


def _correct_tensor(
    alpha: Float[Tensor, "*batch n"],
    order: int,
    strata: Int[Tensor, " n"] | None,
    mask: Bool[Tensor, "*mask n"] | None,
) -> Float[Tensor, "*batch n"]:
    require_features("alpha", alpha, "n")
    if can_be_read(alpha):
        sixteen_bits = alpha.dtype in (torch.float16, torch.bfloat16)
        _require_normalized(alpha.detach().float() if sixteen_bits else alpha.detach(), sixteen_bits)
    a = at_least_float32(alpha)
    # One pool: ABC or ABC-2.
    if strata is None:
        if mask is not None:
            raise UserError("is given without strata", "it can only be used with strata", "omit mask", field="mask")
        return (ABC() if order == 1 else ABC2()).gamma(a).to(alpha.dtype)
    # Several pools: stratified ABC.
    if order == 2:
        allowed = "the stratified correction has order 1"
        raise UserError("is 2 with strata", allowed, "omit one of the two", field="order")
    if mask is None:
        mask = torch.ones_like(a, dtype=torch.bool)
    require_mask(mask, alpha.shape[-1], f"[..., {alpha.shape[-1]}]")
    require_broadcastable("alpha, mask", alpha.shape[:-1], mask.shape[:-1])
    return _stratified(a, strata, mask).to(alpha.dtype)


def _correct_array(alpha: Any, order: int, strata: Any, mask: Any) -> Any:
    """Compute γ with the operators that all array libraries have."""
    if not hasattr(alpha, "__array__") and not hasattr(alpha, "__array_namespace__"):
        allowed = "must be a tensor or an array [..., n]"
        raise UserError(f"is a {type(alpha).__name__}", allowed, "convert it with torch.as_tensor", field="alpha")
    if strata is not None or mask is not None:
        raise UserError(
            "is given with an array", "it needs tensors", "convert alpha with torch.as_tensor", field="strata"
        )
    if "float" not in str(alpha.dtype) or 0 in alpha.shape or not alpha.shape:
        problem = f"is {alpha.dtype} {list(alpha.shape)}"
        raise UserError(problem, "must be a floating-point array [..., n] with n ≥ 1", "convert it", field="alpha")
    if not type(alpha).__name__.endswith("Tracer"):  # JAX traces with arrays that have no values
        _require_normalized(alpha, "16" in str(alpha.dtype))
    a = alpha.astype("float32") if "16" in str(alpha.dtype) else alpha
    squared = a * a
    p_2 = squared.sum(-1)[..., None]
    if order == 1:
        gamma = a * (1 - p_2) + squared
    else:
        p_3 = (squared * a).sum(-1)[..., None]
        gamma = a * (1 - p_2 + 3 * p_2 * p_2 - 2 * p_3 + (1 - 3 * p_2) * a + 2 * squared)
    return gamma.astype(alpha.dtype)


def _require_normalized(alpha: Any, sixteen_bits: bool) -> None:
    """Require weights that are not negative and sum to 1, except in rows of zeros. NaN is not judged."""
    total, tolerance = alpha.sum(-1), 0.05 if sixteen_bits else SUM_TOLERANCE
    wrong = (abs(total - 1) > tolerance) & (total != 0)
    if bool(wrong.any()) or bool((alpha < 0).any()):
        sums = f"sums from {float(total.min()):.4g} to {float(total.max()):.4g}"
        negative = " and negative entries" if bool((alpha < 0).any()) else ""
        fix = "apply a softmax first: alpha = logits.softmax(-1)"
        raise UserError(f"has {sums}{negative}", "must be normalized weights with sum 1", fix, field="alpha")


def _stratified(alpha: Tensor, strata: Tensor, drawn: Tensor) -> Tensor:
    """γ = α (1 − p_2 + α) − α (A_{s}/n_{s} − Σ_s A_s²/n_s), where `drawn` masks the references that count in n_s."""
    if not isinstance(strata, Tensor) or strata.shape != alpha.shape[-1:]:
        problem = f"has shape {list(strata.shape)}" if isinstance(strata, Tensor) else f"is a {type(strata).__name__}"
        allowed = f"must be a tensor [{alpha.shape[-1]}]"
        raise UserError(problem, allowed, "pass one integer per reference", field="strata")
    # In float64 and with Σα = 1 to the last digit: 1 − p_2 and the excess cancel where one weight dominates.
    a = to_widest(alpha)
    a = a / a.sum(-1, keepdim=True).clamp_min(torch.finfo(a.dtype).tiny)  # 0 where everything is masked
    same_stratum = (strata.unsqueeze(-1) == strata).to(a.dtype)  # [n, n]: one product sums every stratum at once
    with torch.autocast(alpha.device.type, enabled=False):
        A = a @ same_stratum
        n = (drawn.to(a.dtype) @ same_stratum).clamp_min(1)
    excess = A / n - (a * A / n).sum(-1, keepdim=True)  # Σ_i α_i A_{s(i)}/n_{s(i)} = Σ_s A_s²/n_s
    return alpha * (1 - a.square().sum(-1, keepdim=True) + a - excess).to(alpha.dtype)


@dataclass(frozen=True)
class ABC(PolynomialEstimator):
    """Analytical bias correction: γ_i = α_i (1 − p_2 + α_i) (`eq:abc`)."""

    name: str = "abc"
    bias_order: int = 2

    def coefficients(self, p_2: Tensor) -> Coefficients:  # type: ignore[override]
        return 1 - p_2, 1.0

    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        squared = alpha.square()
        return torch.addcmul(squared, alpha, torch.rsub(squared.sum(-1, keepdim=True), 1.0))


@dataclass(frozen=True)
class ABC2(PolynomialEstimator):
    """ABC of second order: γ_i = α_i (1 − p_2 + 3p_2² − 2p_3 + (1 − 3p_2) α_i + 2α_i²)."""

    name: str = "abc2"
    bias_order: int = 3

    def coefficients(self, p_2: Tensor, p_3: Tensor) -> Coefficients:  # type: ignore[override]
        return 1 - p_2 + 3 * p_2.square() - 2 * p_3, 1 - 3 * p_2, 2.0


@dataclass(frozen=True, eq=False)
class StratifiedABC(Estimator):
    """ABC for references from several pools: γ_i = α_i (1 − p_2 + α_i) − α_i (A_{s(i)}/n_{s(i)} − Σ_s A_s²/n_s).

    Args:
        strata: The pool [n] that each reference was drawn from, as integers.
    """

    strata: Tensor
    name: str = "stratified-abc"
    bias_order: int = 2

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        gamma = _stratified(softmax(to_widest(log_w)), self.strata.to(log_w.device), log_w > -torch.inf)
        return cast_like(gamma, log_w)
