"""s = −log w of every pool point at every query, in float64: what the whole laboratory starts from.

One query and one pool of 10⁶ points are 8 MB; queries are taken in blocks, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.kernel import LogKernel, gaussian, laplace

ELEMENTS = 1 << 23
"""Of s at a time."""


def minus_log_kernel(
    kernel: LogKernel, x: Float[Tensor, "Q D"], pool: Float[Tensor, "N D"], tau: float
) -> Float[Tensor, "Q N"]:
    """−log k. The two kernels of a distance need no gradient here, and so no temporaries."""
    if kernel is laplace:
        return torch.cdist(x, pool, compute_mode="donot_use_mm_for_euclid_dist").div_(tau)
    if kernel is gaussian:
        return torch.cdist(x, pool, compute_mode="donot_use_mm_for_euclid_dist").square_().div_(2 * tau**2)
    return -kernel(x, pool, tau).to(torch.float64)


def blocks(x: Float[Tensor, "Q ..."], points: int) -> Iterator[Float[Tensor, "some ..."]]:
    """The queries, as many at a time as ELEMENTS allows for that many points."""
    yield from x.split(max(1, ELEMENTS // points))
