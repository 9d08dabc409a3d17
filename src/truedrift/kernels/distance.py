"""d_ij = ‖x_i − y_j‖₂, the distance inside every kernel (`eq:meanshift`).

Two paths that agree to rounding. *exact* forms the differences; *matmul* expands the square,

    ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y,

which costs one matrix product but cancels when x is near y. A log-weight is −d/τ, so an error of 1e-7 in d² is
an error of 1e-3 in a weight at d = 0.005, τ = 0.02. Both are therefore computed in float64 wherever the device has it,
and rounded once; the product is centered on the mean of y, and entries that are zero by identity are set, not computed.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.errors import require_choice
from truedrift.kernels.precision import to_widest

Method = Literal["auto", "exact", "matmul"]

EXACT_UP_TO_ELEMENTS = 1 << 16
"""`auto` forms differences while they have at most this many elements: there a matrix product is no faster."""

EXACT_UP_TO_DIMENSION = 4
"""… and always in so few dimensions, where the differences are hardly larger than the distances."""


def pairwise_distance(
    x: Float[Tensor, "*#batch B D"],
    y: Float[Tensor, "*#batch n D"],
    *,
    method: Method = "auto",
    same: bool = False,
) -> Float[Tensor, "*batch B n"]:
    """d_ij = ‖x_i − y_j‖ in at least float32; `same` says that y is x, so that the diagonal is zero by identity.

    The gradient at distance zero is zero.
    """
    return safe_sqrt(_squared(x, y, method, same)).to(_result_dtype(x, y))


def squared_distance(
    x: Float[Tensor, "*#batch B D"],
    y: Float[Tensor, "*#batch n D"],
    *,
    method: Method = "auto",
    same: bool = False,
) -> Float[Tensor, "*batch B n"]:
    """d²_ij in at least float32."""
    return _squared(x, y, method, same).to(_result_dtype(x, y))


def _squared(x: Tensor, y: Tensor, method: Method, same: bool) -> Tensor:
    """d² in the widest format of the device: float32 would overflow at d = 10¹⁹."""
    require_choice("method", method, get_args(Method))
    if method == "auto":
        method = "exact" if _is_small(x, y) else "matmul"
    squared = (_exact if method == "exact" else _matmul)(to_widest(x), to_widest(y))
    if same:
        squared = squared.masked_fill(torch.eye(x.shape[-2], dtype=torch.bool, device=x.device), 0)
    return squared


def _result_dtype(x: Tensor, y: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)


def safe_sqrt(squared: Tensor) -> Tensor:
    """√s with derivative 0, instead of ∞, at s = 0."""
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1).sqrt(), 0)


def _is_small(x: Tensor, y: Tensor) -> bool:
    B, n, D = x.shape[-2], y.shape[-2], x.shape[-1]
    return D <= EXACT_UP_TO_DIMENSION or B * n * D <= EXACT_UP_TO_ELEMENTS


def _exact(x: Tensor, y: Tensor) -> Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    center = y.mean(-2, keepdim=True)
    x, y = x - center, y - center
    squared = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2) - 2 * (x @ y.mT)
    return squared.clamp_min(0)
