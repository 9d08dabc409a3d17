"""log k(x, y), the similarity that weights a reference (`eq:meanshift`).

| name     | log k(x, y)          |                      |
|----------|----------------------|----------------------|
| laplace  | −‖x − y‖ / τ         | the paper's default  |
| gaussian | −‖x − y‖² / (2τ²)    |                      |

Kernels are stored as logarithms. At d/τ = 10³ the kernel itself is zero in every floating-point format, but a centroid
needs only ratios of kernels, and those are not zero. Instead of a name, any function (x, y, tau) → log k [..., B, n] of
a positive kernel can be passed. Kernels that recipes may name are listed in `ObjectiveOptions.kernel` as well.
"""

from collections.abc import Callable

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError, require_choice
from truedrift.kernels.distance import pairwise_distance, squared_distance

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
    return pairwise_distance(x, y) / -tau


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
    return -squared_distance(x, y) / (2 * tau * tau)


KERNELS: dict[str, LogKernel] = {"laplace": laplace, "gaussian": gaussian}


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
