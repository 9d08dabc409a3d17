"""T(x) = Σ_i γ_i y_i with γ from log k(x, y_i): the corrected centroid (`eq:minibatch`, `eq:centroid`, `eq:abc`).

It estimates the target centroid T*(x) = E[k(x, y) y] / E[k(x, y)] (`eq:centroid_pop`).
"""

from __future__ import annotations

import math

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.centroids.base import Estimator, weighted_mean
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.masking import usable
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.kernels.weights import masked
from truedrift.validation import (
    require_broadcastable,
    require_features,
    require_finite,
    require_log_kernel,
    require_positive,
    require_same_dimension,
    require_temperature,
)


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
    mask, y = usable(mask, x, y)
    if check_finite:
        require_finite(x=x, y=y)
        require_positive("tau", tau)
    with full_precision(x):
        log_w = masked(kernel(x, y, tau), mask)
        if check_finite:
            require_log_kernel(log_w)
        T = weighted_mean(estimator.reweight(log_w, generator), y)
        T = torch.where((log_w > -math.inf).any(-1, keepdim=True), T, x.to(T.dtype))
    return T.to(torch.promote_types(x.dtype, y.dtype))


def full_precision(x: Tensor) -> torch.autocast:
    """Autocast off: a bfloat16 product would undo what the weights were kept in float32 for."""
    return torch.autocast(x.device.type, enabled=False)
