"""(x, y) → log w: distances, log-kernels and normalized weights."""

from truedrift.kernels.distance import pairwise_distance, squared_distance
from truedrift.kernels.kernel import LogKernel, gaussian, laplace, log_kernel
from truedrift.kernels.weights import (
    apply_mask,
    effective_sample_size,
    leave_one_out_logsumexp,
    logsumexp,
    normalize,
    softmax,
)

__all__ = [
    "LogKernel",
    "apply_mask",
    "effective_sample_size",
    "gaussian",
    "laplace",
    "leave_one_out_logsumexp",
    "log_kernel",
    "logsumexp",
    "normalize",
    "pairwise_distance",
    "softmax",
    "squared_distance",
]
