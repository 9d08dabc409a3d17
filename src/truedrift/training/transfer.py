"""Host → device without waiting: a GPU copies from pinned memory while the processor goes on.

From ordinary memory CUDA first waits for all work that was asked for before.
"""

from __future__ import annotations

import torch

from truedrift.axes import Tensor


def to_device(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The tensor of the host on the device, in another dtype if one is named."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, dtype, non_blocking=True) if dtype else tensor.to(device, non_blocking=True)
