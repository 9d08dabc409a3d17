"""T(x) over references that do not fit in memory, in one pass over chunks of them.

With S_k = Σ w_i^k and P_k = Σ w_i^k y_i, the centroids of "standard", "abc" and "abc2" need only k ≤ 1, 2, 3
(`eq:abc`): T = P_1/S_1, p_k = S_k/S_1^k, D_k = P_k/S_1^k − p_k T,

    T,   T + D_2,   T + (1 − 3p_2) D_2 + 2 D_3.

Weights are relative to the largest log-weight seen so far; when a chunk raises it by δ, S_k and P_k are multiplied
by e^{−kδ}. Weights and sums are in float64 where the device has it. The result equals the centroid of all references at
once, to rounding.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate

import torch

from truedrift.axes import Tensor
from truedrift.centroids.centroid import prepare_mask
from truedrift.errors import UserError, require_choice
from truedrift.kernels.kernel import LogKernel, log_kernel, wide_log_kernel
from truedrift.kernels.precision import full_precision, to_widest
from truedrift.kernels.weights import apply_mask, lowest_finite
from truedrift.tensor_checks import (
    require_broadcastable,
    require_features,
    require_finite,
    require_same_dimension,
    require_temperature,
)

ORDERS = {"standard": 1, "abc": 2, "abc2": 3}
"""The number of powers of w that each estimator needs."""

BLOCK_ELEMENTS = 1 << 17
"""Weights, and elements of y, per block: one megabyte of float64, which fits in the cache of a CPU."""


@torch.no_grad()
def streaming_centroid(
    x: Tensor,
    chunks: Iterable[Tensor | tuple[Tensor, Tensor]],
    *,
    tau: float,
    estimator: str = "abc",
    kernel: str | LogKernel = "laplace",
    check_finite: bool = False,
) -> Tensor:
    """Compute the corrected centroid of references that arrive in chunks.

    Use `centroid` if all references fit in memory. No gradient is recorded.

    Args:
        x: Queries [..., B, D].
        chunks: An iterable of references y [..., n, D], or of pairs (y, mask) with a mask as in `centroid`.
        tau: Temperature τ > 0 of the kernel.
        estimator: "standard", "abc" or "abc2".
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k.
        check_finite: Whether to check the values of x and of every chunk. This synchronizes the device.

    Returns:
        T [..., B, D], in the dtype of x. For a query that uses no reference, T = x.

    Raises:
        UserError: If an argument is invalid or if there are no chunks.

    Example:
        >>> import torch
        >>> from truedrift import streaming_centroid
        >>> x, y = torch.zeros(1, 1), torch.tensor([[0.0], [1.0], [3.0]])
        >>> streaming_centroid(x, y.split(2), tau=1.0)
        tensor([[0.2293]])
    """
    # Check the input.
    require_choice("estimator", estimator, ORDERS)
    require_temperature(tau)
    require_features("x", x, "B, D")
    if check_finite:
        require_finite(x=x)
    kernel = log_kernel(kernel)
    # Add the references block by block.
    sums = RunningSums(x, ORDERS[estimator])
    with full_precision(x):
        for y, mask in _check_chunks(x, chunks, check_finite):
            step = max(1, BLOCK_ELEMENTS // max(x.shape[-2:]))
            for start in range(0, y.shape[-2], step):
                columns = slice(start, start + step)
                part = None if mask is None else mask[..., columns]
                sums.add(apply_mask(wide_log_kernel(kernel, x, y[..., columns, :], tau), part), y[..., columns, :])
    if sums.blocks == 0:
        fix = "check that the iterator is not exhausted"
        raise UserError("is empty", "must contain at least one chunk", fix, field="chunks")
    return sums.centroid().to(x.dtype)


def _check_chunks(
    x: Tensor, chunks: Iterable[Tensor | tuple[Tensor, Tensor]], check_finite: bool
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield (y, mask) of every chunk, which is y, or a tuple or list (y, mask) or, as in a DataLoader, (y,)."""
    try:
        iterator = iter(chunks)
    except TypeError:
        problem, allowed = f"is a {type(chunks).__name__}", "must be an iterable of references"
        raise UserError(problem, allowed, "pass for example [y]", field="chunks") from None
    for chunk in iterator:
        parts = chunk if isinstance(chunk, (tuple, list)) else (chunk,)
        if not 1 <= len(parts) <= 2:
            problem = f"has {len(parts)} parts"
            raise UserError(problem, "must be y, (y,) or (y, mask)", "omit the other parts", field="a chunk")
        y, mask = parts if len(parts) == 2 else (*parts, None)
        require_features("a chunk", y, "n, D")
        require_same_dimension(x=x, chunk=y)
        require_broadcastable("x, chunk", x.shape[:-2], y.shape[:-2])
        mask, y = prepare_mask(mask, x, y)
        if check_finite:
            require_finite(chunk=y)
        yield y, mask


class RunningSums:
    """The sums S_k [..., B, 1] and P_k [..., B, D] for k = 1 … order, relative to the largest log-weight seen."""

    def __init__(self, x: Tensor, order: int) -> None:
        self.x, self.order, self.blocks = x, order, 0
        self.top = torch.full_like(to_widest(x[..., :1]), -math.inf)
        self.S = [torch.zeros_like(self.top) for _ in range(order)]
        self.P = [torch.zeros_like(to_widest(x)) for _ in range(order)]

    def add(self, log_w: Tensor, y: Tensor) -> None:
        """Add the references y with log-weights l [..., B, n]."""
        self.blocks += 1
        # Rescale to the new largest log-weight.
        top = torch.maximum(self.top, log_w.amax(-1, keepdim=True))
        shift = top.clamp_min(lowest_finite(top))  # nothing seen yet: any finite shift
        fade = (self.top - shift).exp()
        # Add the powers of the new weights.
        w = (log_w - shift).exp()
        y = y.to(w.dtype)
        for k, power in enumerate(accumulate([w] * self.order, torch.mul)):
            self.S[k] = self.S[k] * fade ** (k + 1) + power.sum(-1, keepdim=True)
            self.P[k] = self.P[k] * fade ** (k + 1) + power @ y
        self.top = top

    def centroid(self) -> Tensor:
        """Return T with the correction of this order, or x where no reference was used."""
        S_1 = self.S[0].clamp_min(torch.finfo(self.top.dtype).tiny)
        T = self.P[0] / S_1
        p = [S / S_1 ** (k + 1) for k, S in enumerate(self.S)]
        D = [P / S_1 ** (k + 1) - p_k * T for k, (P, p_k) in enumerate(zip(self.P, p, strict=True))]
        if self.order == 2:
            T = T + D[1]
        if self.order == 3:
            T = T + (1 - 3 * p[1]) * D[1] + 2 * D[2]
        return torch.where(self.top > -math.inf, T, self.x.to(T.dtype))
