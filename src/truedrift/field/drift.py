"""V(x) = T⁺(x) − T⁻(x): the drifting field (`eq:meanshift`), from a centroid of real and one of generated samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift.axes import Bool, Float, Int, Tensor
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.centroid import broadcast_mask, prepare_mask
from truedrift.centroids.estimator import Estimator, weighted_mean
from truedrift.errors import (
    UserError,
    require_broadcastable,
    require_choice,
    require_features,
    require_finite,
    require_log_kernel,
    require_positive,
    require_same_dimension,
    require_temperature,
)
from truedrift.field.affinity import FORMS, NORMALIZATIONS, FieldSpec, Form, Normalization, side_weights
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.kernels.precision import full_precision
from truedrift.kernels.weights import apply_mask, effective_sample_size


@dataclass(frozen=True)
class Drift:
    """The field at every query, and what it was made of."""

    V: Tensor
    """[..., B, D] the field."""
    T_pos: Tensor
    """[..., B, D] centroid of the positives; x where none is used."""
    T_neg: Tensor
    """[..., B, D] centroid of the negatives; x where none is used."""
    n_eff_pos: Tensor
    """[..., B] effective number of positives, 1/Σα²."""
    n_eff_neg: Tensor
    """[..., B] effective number of negatives."""
    valid: Tensor
    """[..., B] whether the query has a reference on both sides."""
    log_mass: Tensor
    """[..., B] log S⁺S⁻, the factor of the product form; below −10³⁸ where a side is empty."""


def drift(
    x: Float[Tensor, "*#batch B D"],
    y_pos: Float[Tensor, "*#batch n D"],
    y_neg: Float[Tensor, "*#batch m D"],
    *,
    tau: float | Tensor,
    normalization: Normalization = "row",
    form: Form = "separate",
    estimator_pos: str | Estimator = "abc",
    estimator_neg: str | Estimator = "abc",
    self_mask: bool | Int[Tensor, " B"] = False,
    mask_pos: Bool[Tensor, "*mask_pos n"] | None = None,
    mask_neg: Bool[Tensor, "*mask_neg m"] | None = None,
    kernel: str | LogKernel = "laplace",
    generator: torch.Generator | None = None,
    check_finite: bool = False,
) -> Drift:
    """V [..., B, D] at queries x from positives y_pos [..., n, D] and negatives y_neg [..., m, D].

    `self_mask=True` says that y_neg[i] is x[i], so that a query does not repel itself; a LongTensor [B] gives each
    query's own column (−1: none). It is never guessed. A side with nothing to use has T = x, hence no force of its
    own in the separate form and no field at all in the product form.
    """
    spec = FieldSpec(normalization, form, estimator_of(estimator_pos), estimator_of(estimator_neg))
    _check(x, y_pos, y_neg, tau, spec)
    kernel = log_kernel(kernel)
    mask_pos, y_pos = prepare_mask(mask_pos, x, y_pos, "mask_pos")
    mask_neg, y_neg = prepare_mask(_with_self_mask(mask_neg, self_mask, x, y_neg), x, y_neg, "mask_neg")
    if check_finite:
        require_finite(x=x, y_pos=y_pos, y_neg=y_neg)
        _check_columns(self_mask, y_neg.shape[-2])
        require_positive("tau", tau)
    with full_precision(x):
        log_k_pos = apply_mask(kernel(x, y_pos, tau), mask_pos)
        log_k_neg = apply_mask(kernel(x, y_neg, tau), mask_neg)
        if check_finite:
            require_log_kernel(log_k_pos)
            require_log_kernel(log_k_neg)
        weights = side_weights(_side_by_side(log_k_neg, log_k_pos), y_neg.shape[-2], spec, generator=generator)
        has_pos, has_neg = ((log_k > -torch.inf).any(-1, keepdim=True) for log_k in (log_k_pos, log_k_neg))
        T_pos = torch.where(has_pos, weighted_mean(weights.gamma_pos, y_pos), x)
        T_neg = torch.where(has_neg, weighted_mean(weights.gamma_neg, y_neg), x)
        V = T_pos - T_neg if form == "separate" else weights.log_mass.exp() * (T_pos - T_neg)
    dtype = torch.promote_types(x.dtype, torch.promote_types(y_pos.dtype, y_neg.dtype))
    return Drift(
        V=V.to(dtype),
        T_pos=T_pos.to(dtype),
        T_neg=T_neg.to(dtype),
        n_eff_pos=effective_sample_size(weights.alpha_pos),
        n_eff_neg=effective_sample_size(weights.alpha_neg),
        valid=(has_pos & has_neg).squeeze(-1),
        log_mass=weights.log_mass.squeeze(-1),
    )


def _check(x: Tensor, y_pos: Tensor, y_neg: Tensor, tau: float | Tensor, spec: FieldSpec) -> None:
    require_temperature(tau)
    require_choice("normalization", spec.normalization, NORMALIZATIONS)
    require_choice("form", spec.form, FORMS)
    require_features("x", x, "B, D")
    require_features("y_pos", y_pos, "n, D")
    require_features("y_neg", y_neg, "m, D")
    require_same_dimension(x=x, y_pos=y_pos, y_neg=y_neg)
    require_broadcastable("x, y_pos, y_neg", x.shape[:-2], y_pos.shape[:-2], y_neg.shape[:-2])


def _with_self_mask(mask: Tensor | None, self_mask: bool | Tensor, x: Tensor, y_neg: Tensor) -> Tensor | None:
    """The mask of the negatives with each query's own column left out, [..., B, m]."""
    if self_mask is False:
        return mask
    B, m = x.shape[-2], y_neg.shape[-2]
    if self_mask is True:
        if m != B:
            raise UserError(
                f"self_mask is True with {B} queries and {m} negatives",
                "that needs y_neg[i] to be x[i]",
                "pass a LongTensor with each query's own column instead",
            )
        self_mask = torch.arange(B, device=x.device)
    if not isinstance(self_mask, Tensor) or self_mask.dtype is not torch.long or self_mask.shape != (B,):
        came = f"{self_mask.dtype} {list(self_mask.shape)}" if isinstance(self_mask, Tensor) else f"{self_mask!r}"
        raise UserError(
            f"self_mask is {came}",
            f"allowed is False, True or a LongTensor [{B}]",
            "give each query's own column, −1 for none",
        )
    other = self_mask.to(x.device).unsqueeze(-1) != torch.arange(m, device=x.device)
    other = other.expand(*(1,) * (max(x.ndim, y_neg.ndim) - 2), B, m)
    return other if mask is None else broadcast_mask(mask, x, y_neg, "mask_neg") & other


def _check_columns(self_mask: bool | Tensor, m: int) -> None:
    """Every column of `self_mask` is a negative's, or −1. Looks at values, hence only on request."""
    if isinstance(self_mask, Tensor) and bool(((self_mask < -1) | (self_mask >= m)).any()):
        raise UserError(
            f"self_mask has columns from {int(self_mask.min())} to {int(self_mask.max())}",
            f"allowed are −1 to {m - 1}",
            "give each query's own column, −1 for none",
        )


def _side_by_side(log_k_neg: Tensor, log_k_pos: Tensor) -> Tensor:
    """[neg | pos] along the last dimension, leading dimensions broadcast."""
    leading = torch.broadcast_shapes(log_k_neg.shape[:-1], log_k_pos.shape[:-1])
    return torch.cat([side.expand(*leading, side.shape[-1]) for side in (log_k_neg, log_k_pos)], -1)
