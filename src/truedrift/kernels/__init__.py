"""(x, y) → log w: distances, log-kernels and normalized weights."""

from truedrift.kernels.distance import pairwise_distance, squared_distance
from truedrift.kernels.kernel import KERNELS, LogKernel, gaussian, laplace, log_kernel
from truedrift.kernels.weights import apply_mask, effective_sample_size, logsumexp, normalize, power_sum, softmax

__all__ = [
    "KERNELS",
    "LogKernel",
    "apply_mask",
    "effective_sample_size",
    "gaussian",
    "laplace",
    "log_kernel",
    "logsumexp",
    "normalize",
    "pairwise_distance",
    "power_sum",
    "softmax",
    "squared_distance",
]
