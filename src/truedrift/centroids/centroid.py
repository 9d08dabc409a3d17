"""T(x) = Σ_i γ_i y_i with γ from log k(x, y_i): the corrected centroid (`eq:minibatch`, `eq:centroid`, `eq:abc`).

It estimates the target centroid T*(x) = E[k(x, y) y] / E[k(x, y)] (`eq:centroid_pop`).

Masks are boolean with True = use: [..., n] selects references for all queries, [..., B, n] for each query. A masked
reference has the log-weight −∞.
"""

import math

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import AlphaEstimator, Estimator, weighted_mean
from truedrift.errors import UserError
from truedrift.kernels.distance import result_dtype
from truedrift.kernels.kernel import LogKernel, log_kernel, wide_log_kernel
from truedrift.kernels.precision import can_be_read, cast, full_precision
from truedrift.kernels.weights import apply_mask
from truedrift.tensor_checks import (
    expands_to,
    require_broadcastable,
    require_features,
    require_finite,
    require_log_kernel,
    require_mask,
    require_positive,
    require_same_dimension,
    require_temperature,
)


def prepare_mask(mask: Tensor | None, x: Tensor, y: Tensor, field: str = "mask") -> tuple[Tensor | None, Tensor]:
    """Return the mask as [..., B or 1, n], and y with the references that no query uses set to 0."""
    if mask is None:
        return None, y
    mask = broadcast_mask(mask, x, y, field)
    return mask, y.masked_fill(~mask.any(-2).unsqueeze(-1), 0)


def broadcast_mask(mask: Tensor, x: Tensor, y: Tensor, field: str = "mask") -> Tensor:
    """Return the mask as [..., B or 1, n]. A mask with fewer dimensions than x and y is read as [..., n]."""
    B, n, dimensions = x.shape[-2], y.shape[-2], max(x.ndim, y.ndim)
    shapes = f"[..., {n}] or [..., {B}, {n}]"
    require_mask(mask, n, shapes, field)
    per_query = mask if mask.ndim >= dimensions else mask.unsqueeze(-2)
    leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if not expands_to(per_query.shape, (*leading, B, n)):
        allowed = f"must have shape {shapes} and the leading dimensions {list(leading)} of x and y"
        fix = f"with one row per query, unsqueeze it to {dimensions} dimensions"
        raise UserError(f"has shape {list(mask.shape)}", allowed, fix, field=field)
    return per_query


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
    """Compute the corrected centroid T(x) = Σ_i γ_i y_i of references y at queries x.

    Args:
        x: Queries [..., B, D].
        y: References [..., n, D].
        tau: Temperature τ > 0 of the kernel.
        estimator: "standard", "abc", "abc2", "jackknife", "bootstrap" or "br-snis", or an object
            (`truedrift.centroids.Estimator`).
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k.
        mask: True = use. [..., B, n] if it has as many dimensions as x or y, and [..., n] if it has fewer. A reference
            that no query uses may contain any values, including NaN.
        generator: Random numbers for estimators that draw.
        check_finite: Whether to check the values of x, y, tau and the kernel. This synchronizes the device.

    Returns:
        T [..., B, D], in the dtype of x and y. Weights, and sums over more than 8192 references, are computed in
        float64 where the device has it, even under autocast. For a query that uses no reference, T = x.

    Raises:
        UserError: If an argument is invalid.

    Example:
        >>> import torch
        >>> from truedrift import centroid
        >>> x, y = torch.zeros(1, 1), torch.tensor([[0.0], [1.0], [3.0]])
        >>> centroid(x, y, tau=1.0, estimator="standard")
        tensor([[0.3649]])
        >>> centroid(x, y, tau=1.0)  # the correction moves weight to the nearest reference
        tensor([[0.2293]])
    """
    # Check the input.
    estimator = estimator_of(estimator)
    kernel = log_kernel(kernel)
    require_temperature(tau)
    require_features("x", x, "B, D")
    require_features("y", y, "n, D")
    require_same_dimension(x=x, y=y)
    if x.ndim > 2 or y.ndim > 2:
        require_broadcastable("x, y", x.shape[:-2], y.shape[:-2])
    mask, y = prepare_mask(mask, x, y)
    if check_finite:
        require_finite(x=x, y=y)
        require_positive("tau", tau)
    # log k → γ → T; a query without references gets itself.
    with full_precision(x):
        log_w = apply_mask(wide_log_kernel(kernel, x, y, tau), mask)
        if check_finite:
            require_log_kernel(log_w)
        complete = can_be_read(log_w) and log_w.sum().item() > -math.inf  # every reference has weight
        if complete and isinstance(estimator, AlphaEstimator):
            gamma = estimator.reweight(log_w, assume_nonempty=True)
        else:
            gamma = estimator.reweight(log_w, generator)
        T = weighted_mean(cast(gamma, result_dtype(x, y)), y)
        if not complete:
            T = torch.where((log_w > -math.inf).any(-1, keepdim=True), T, x.to(T.dtype))
    return cast(T, x.dtype if x.dtype is y.dtype else torch.promote_types(x.dtype, y.dtype))
