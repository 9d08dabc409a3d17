"""Masks: True = use. [..., n] is about a reference, [..., B, n] about a reference and a query; inside it is l = −∞.

T(x) = Σ_i γ_i y_i with γ from log k(x, y_i): the corrected centroid (`eq:minibatch`, `eq:centroid`, `eq:abc`).

It estimates the target centroid T*(x) = E[k(x, y) y] / E[k(x, y)] (`eq:centroid_pop`).
"""

from __future__ import annotations

import math

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import Estimator, weighted_mean
from truedrift.errors import (
    UserError,
    require_broadcastable,
    require_features,
    require_finite,
    require_log_kernel,
    require_mask,
    require_positive,
    require_same_dimension,
    require_temperature,
)
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.kernels.precision import full_precision
from truedrift.kernels.weights import apply_mask


def prepare_mask(mask: Tensor | None, x: Tensor, y: Tensor, what: str = "mask") -> tuple[Tensor | None, Tensor]:
    """The mask as [..., B or 1, n], and y with zeros where no query uses it, whatever stood there."""
    if mask is None:
        return None, y
    mask = broadcast_mask(mask, x, y, what)
    return mask, y.masked_fill(~mask.any(-2).unsqueeze(-1), 0)


def broadcast_mask(mask: Tensor, x: Tensor, y: Tensor, what: str = "mask") -> Tensor:
    """The mask as [..., B or 1, n]. With as many dimensions as x or y it is that already, with fewer it is [..., n]."""
    B, n, dimensions = x.shape[-2], y.shape[-2], max(x.ndim, y.ndim)
    allowed = f"[..., {n}] or [..., {B}, {n}]"
    require_mask(mask, n, allowed, what)
    if mask.ndim < dimensions:
        mask = mask.unsqueeze(-2)
    if mask.shape[-2] not in (1, B):
        came = f"{what} has shape {list(mask.shape)}"
        raise UserError(came, f"allowed is {allowed}", "give one row a query and one column a reference")
    require_broadcastable(f"{what}, x and y", mask.shape[:-2], x.shape[:-2], y.shape[:-2])
    leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if torch.broadcast_shapes(mask.shape[:-2], leading) != leading:
        came = f"{what} has leading dimensions {list(mask.shape[:-2])}, which would repeat x and y"
        raise UserError(came, f"allowed are those of x and y, {list(leading)}", "unsqueeze it to [..., B, n]")
    return mask


def centroid(
    x: Float[Tensor, "*#batch B D"],
    y: Float[Tensor, "*#batch n D"],
    *,
    tau: float | Tensor,
    estimator: str | Estimator = "abc",
    kernel: str | LogKernel = "laplace",
    mask: Bool[Tensor, "*mask n"] | None = None,
    generator: torch.Generator | None = None,
    check_finite: bool = False,
) -> Float[Tensor, "*batch B D"]:
    """T [..., B, D] at queries x [..., B, D] from references y [..., n, D].

    `mask` is [..., B, n] if it has as many dimensions as x or y, and [..., n] if it has fewer, with True = use; a
    reference that no query uses may hold anything, NaN included. A query with nothing to use gets itself, T = x. The
    result has the dtype of x and y; weights are computed in at least float32, also under autocast.
    """
    estimator = estimator_of(estimator)
    kernel = log_kernel(kernel)
    require_temperature(tau)
    require_features("x", x, "B, D")
    require_features("y", y, "n, D")
    require_same_dimension(x=x, y=y)
    require_broadcastable("x, y", x.shape[:-2], y.shape[:-2])
    mask, y = prepare_mask(mask, x, y)
    if check_finite:
        require_finite(x=x, y=y)
        require_positive("tau", tau)
    with full_precision(x):
        log_w = apply_mask(kernel(x, y, tau), mask)
        if check_finite:
            require_log_kernel(log_w)
        T = weighted_mean(estimator.reweight(log_w, generator), y)
        T = torch.where((log_w > -math.inf).any(-1, keepdim=True), T, x.to(T.dtype))
    return T.to(torch.promote_types(x.dtype, y.dtype))
