"""log k(x, y), the similarity that weights a reference (`eq:meanshift`).

| name     | log k(x, y)          |                      |
|----------|----------------------|----------------------|
| laplace  | −‖x − y‖ / τ         | the paper's default  |
| gaussian | −‖x − y‖² / (2τ²)    |                      |

Kernels are stored as logarithms. At d/τ = 10³ the kernel itself is zero in every floating-point format, but a centroid
needs only ratios of kernels, and those are not zero. Instead of a name, any function (x, y, tau) → log k [..., B, n] of
a positive kernel can be passed. Kernels that recipes may name are listed in `ObjectiveOptions.kernel` as well.

log k is computed in float64 where the device has it, and rounded last. −∞ is the log-weight of a masked reference. A
reference at a finite distance is not masked, so float32 log-kernels are at least −3·10³² (`lowest_log_kernel`), and all
references beyond that are equally far.
"""

from collections.abc import Callable

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError, require_choice
from truedrift.kernels.distance import pairwise_distance, result_dtype, squared_distance
from truedrift.kernels.precision import to_widest

LogKernel = Callable[[Tensor, Tensor, float | Tensor], Tensor]
"""(x [..., B, D], y [..., n, D], tau) → log k [..., B, n]."""


def laplace(x: Tensor, y: Tensor, tau: float | Tensor) -> Tensor:
    """Return log k = −‖x − y‖ / τ.

    Args:
        x: Queries [..., B, D].
        y: References [..., n, D].
        tau: Temperature τ > 0.

    Returns:
        log k [..., B, n], in at least float32.

    Example:
        >>> import torch
        >>> laplace(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 0.5).abs()
        tensor([[10.,  0.]])
    """
    return _round(pairwise_distance(to_widest(x), y) / -tau, x, y)


def gaussian(x: Tensor, y: Tensor, tau: float | Tensor) -> Tensor:
    """Return log k = −‖x − y‖² / (2τ²).

    Args:
        x: Queries [..., B, D].
        y: References [..., n, D].
        tau: Temperature τ > 0, the standard deviation of the kernel.

    Returns:
        log k [..., B, n], in at least float32.

    Example:
        >>> import torch
        >>> gaussian(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 0.5).abs()
        tensor([[50.,  0.]])
    """
    # τ² and d² would leave the range of float32 far before d/τ does.
    return _round(squared_distance(to_widest(x), y) / tau / tau * -0.5, x, y)


KERNELS: dict[str, LogKernel] = {"laplace": laplace, "gaussian": gaussian}


def _round(log_k: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Round log k to the format of x and y, and to a finite number below the range of float32."""
    if x.dtype is torch.float64 or y.dtype is torch.float64:
        return log_k
    dtype = result_dtype(x, y)
    return log_k.to(dtype).clamp_min(lowest_log_kernel(dtype))


def lowest_log_kernel(dtype: torch.dtype) -> float:
    """Return the log-kernel of all references beyond the range of `dtype`; sums of many such numbers are finite."""
    return torch.finfo(dtype).min / 2**20


def wide_log_kernel(kernel: LogKernel, x: Tensor, y: Tensor, tau: float | Tensor) -> Tensor:
    """Return log k in the widest format; a function of the user is called with x and y as they are."""
    return kernel(to_widest(x), y, tau) if kernel is laplace or kernel is gaussian else to_widest(kernel(x, y, tau))


def sharp_log_ratio(kernel: str | LogKernel, log_k: Tensor, tau: float | Tensor) -> Tensor:
    """Compute log k#/k with the sharp kernel k#(r) = ∫_r^∞ u k(u) du, whose gradient in x is k(x, y) (y − x).

    | name     | k#                    | k#/k             |
    |----------|-----------------------|------------------|
    | laplace  | τ (r + τ) exp(−r/τ)   | τ² (1 − log k)   |
    | gaussian | τ² exp(−r²/(2τ²))     | τ²               |

    Args:
        kernel: "laplace" or "gaussian".
        log_k: log k [..., B, n], −∞ where masked.
        tau: Temperature τ, which broadcasts with `log_k`.

    Returns:
        log k#/k [..., B, n], finite also where masked.

    Raises:
        UserError: For another kernel, whose integral is not known.

    Example:
        >>> import torch
        >>> sharp_log_ratio("laplace", torch.tensor([[-1.0]]), 2.0).exp()  # 2² · (1 + 1)
        tensor([[8.]])
    """
    if kernel not in ("laplace", "gaussian"):
        allowed = "the potential needs the integral of the kernel, known for laplace and gaussian"
        raise UserError(f"is {kernel!r} with form 'potential'", allowed, "pass one of these", field="kernel")
    log_squared = 2 * torch.log(torch.as_tensor(tau, dtype=log_k.dtype, device=log_k.device))
    if kernel == "gaussian":
        return log_squared.expand_as(log_k)
    return log_squared + torch.log1p(-log_k.masked_fill(log_k == -torch.inf, 0))


def log_kernel(kernel: str | LogKernel) -> LogKernel:
    """Look up a log-kernel by name.

    Args:
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k, which is returned unchanged.

    Returns:
        The function (x, y, tau) → log k.

    Raises:
        UserError: If the name is unknown.

    Example:
        >>> log_kernel("laplace") is laplace
        True
    """
    if callable(kernel):
        return kernel
    require_choice("kernel", kernel, KERNELS)
    return KERNELS[kernel]
