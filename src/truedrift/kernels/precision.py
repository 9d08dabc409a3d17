"""Precision policy: which floating-point format each quantity is computed in.

| quantity                              | format                                                  | function           |
|---------------------------------------|---------------------------------------------------------|--------------------|
| distances, and γ of an estimator      | float64, or float32 on devices without it               | `to_widest`        |
| log-weights of a centroid             | the same                                                | `to_widest`        |
| log-weights of a field or a loss      | the format of the features, at least float32            | `at_least_float32` |
| γ that is returned                    | the format of its log-weights, at least float32         | `cast_like`        |
| sums over many references             | float64, or float32 on devices without it               | `to_widest`        |
| everything, also under autocast       | no automatic casting to float16 or bfloat16             | `full_precision`   |
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def to_widest(x: Tensor) -> Tensor:
    """Cast x to the widest format in which its device can multiply: float64, but float32 on Apple's MPS."""
    if x.dtype is torch.float64:
        return x
    return at_least_float32(x) if x.device.type == "mps" else x.double()


def at_least_float32(values: Tensor) -> Tensor:
    """Widen float16 and bfloat16 to float32: at τ = 0.02 a bfloat16 log-weight is wrong by 15 %."""
    if values.dtype in (torch.float32, torch.float64):
        return values
    return values.to(torch.promote_types(values.dtype, torch.float32))


def cast_like(gamma: Tensor, log_w: Tensor) -> Tensor:
    """Cast γ to the dtype of log w, but at least to float32."""
    if gamma.dtype is log_w.dtype:
        return at_least_float32(gamma)
    return gamma.to(torch.promote_types(log_w.dtype, torch.float32))


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in that dtype. For small tensors `x.to` takes longer than the arithmetic, also if it does nothing."""
    return x if x.dtype is dtype else x.to(dtype)


def may_be_differentiated(x: Tensor) -> bool:
    """Return whether a derivative of x may be taken: by autograd, in forward mode, or by torch.func."""
    if torch.compiler.is_compiling():
        return True
    forward = torch.autograd.forward_ad._current_level >= 0
    return x.requires_grad or forward or bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def can_be_read(x: Tensor) -> bool:
    """Return whether reading a value of x costs nothing: on the CPU, outside of a compiled graph and torch.func."""
    if torch.compiler.is_compiling() or not x.is_cpu:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(x)


_UNCHANGED = nullcontext()


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Return a context with autocast off on the device of x: a bfloat16 product would lose digits of the weights."""
    device = x.device.type
    if device == "meta":  # which computes shapes only
        return _UNCHANGED
    if not torch.compiler.is_compiling() and not torch.is_autocast_enabled(device):
        return _UNCHANGED
    return torch.autocast(device, enabled=False)
