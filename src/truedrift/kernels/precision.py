"""Precision policy: which floating-point format each quantity is computed in.

| quantity                              | format                                                  | function           |
|---------------------------------------|---------------------------------------------------------|--------------------|
| distances, and γ of an estimator      | float64, or float32 on devices without it               | `to_widest`        |
| log-weights                           | the format of the features, at least float32            | `at_least_float32` |
| γ that is returned                    | the format of its log-weights, at least float32         | `cast_like`        |
| everything, also under autocast       | no automatic casting to float16 or bfloat16             | `full_precision`   |
"""

import torch
from torch import Tensor


def to_widest(x: Tensor) -> Tensor:
    """Cast x to the widest format in which its device can multiply: float64, but float32 on Apple's MPS."""
    return at_least_float32(x) if x.device.type == "mps" else x.double()


def at_least_float32(values: Tensor) -> Tensor:
    """Widen float16 and bfloat16 to float32: at τ = 0.02 a bfloat16 log-weight is wrong by 15 %."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def cast_like(gamma: Tensor, log_w: Tensor) -> Tensor:
    """Cast γ to the dtype of log w, but at least to float32."""
    return gamma.to(torch.promote_types(log_w.dtype, torch.float32))


def full_precision(x: Tensor) -> torch.autocast:
    """Return a context with autocast off on the device of x: a bfloat16 product would lose digits of the weights."""
    return torch.autocast(x.device.type, enabled=False)
