"""log k(x, y), the similarity that weights a reference (`eq:meanshift`).

| name     | log k(x, y)          |                      |
|----------|----------------------|----------------------|
| laplace  | −‖x − y‖ / τ         | the paper's default  |
| gaussian | −‖x − y‖² / (2τ²)    |                      |

Kernels are kept as logarithms: at d/τ = 10³ the kernel itself is zero in every floating-point format, while
ratios of kernels, which is all that a centroid needs, are not. Any function (x, y, tau) → log k [..., B, n] of a
positive kernel may be given instead of a name.
"""

from __future__ import annotations

from collections.abc import Callable

from truedrift.axes import Tensor
from truedrift.errors import require_choice
from truedrift.kernels.distance import pairwise_distance, squared_distance

LogKernel = Callable[[Tensor, Tensor, float | Tensor], Tensor]


def laplace(x: Tensor, y: Tensor, tau: float | Tensor) -> Tensor:
    """log k = −‖x − y‖ / τ."""
    return -pairwise_distance(x, y) / tau


def gaussian(x: Tensor, y: Tensor, tau: float | Tensor) -> Tensor:
    """log k = −‖x − y‖² / (2τ²)."""
    return -squared_distance(x, y) / (2 * tau * tau)


KERNELS: dict[str, LogKernel] = {"laplace": laplace, "gaussian": gaussian}


def log_kernel(kernel: str | LogKernel) -> LogKernel:
    """The log-kernel of that name, or the function itself."""
    if callable(kernel):
        return kernel
    require_choice("kernel", kernel, KERNELS)
    return KERNELS[kernel]
