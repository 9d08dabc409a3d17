from __future__ import annotations

import torch

from truedrift.axes import Tensor


def full_precision(x: Tensor) -> torch.autocast:
    """Autocast off: a bfloat16 product would undo what the weights were kept in float32 for."""
    return torch.autocast(x.device.type, enabled=False)


def cast_like(gamma: Tensor, log_w: Tensor) -> Tensor:
    """γ in the dtype of log w, and at least in float32."""
    return gamma.to(torch.promote_types(log_w.dtype, torch.float32))


def to_widest(x: Tensor) -> Tensor:
    """x in the widest format that its device can multiply: float64, but float32 on Apple's MPS."""
    return at_least_float32(x) if x.device.type == "mps" else x.double()


def at_least_float32(values: Tensor) -> Tensor:
    """float16 and bfloat16 widened to float32: at τ = 0.02 a bfloat16 log-weight is wrong by 15 %."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
