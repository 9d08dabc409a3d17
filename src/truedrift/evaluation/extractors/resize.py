"""Bilinear resize as TensorFlow 1 did it: target pixel i reads at i·H/H′, without a half-pixel shift.

    out = R_H · image · R_Wᵀ,   row i of R has 1 − t at ⌊s⌋ and t at ⌊s⌋ + 1, s = i·H/H′, t = s − ⌊s⌋

and what lies beyond the last pixel is the last pixel. The FID network was trained and is judged with this.
"""

from __future__ import annotations

import torch

from truedrift.axes import Float, Tensor


def resize_like_tensorflow1(images: Float[Tensor, "B C H W"], side: int) -> Float[Tensor, "B C {side} {side}"]:
    """Images of any size as squares of that side."""
    height, width = images.shape[-2:]
    return _weights(height, side).to(images) @ images @ _weights(width, side).to(images).mT


def _weights(length: int, target: int) -> Float[Tensor, "target length"]:
    place = torch.arange(target, dtype=torch.float64) * length / target
    lower = place.floor().long()
    upper = (lower + 1).clamp_max(length - 1)
    t = (place - lower).unsqueeze(1)
    one_hot = torch.eye(length, dtype=torch.float64)
    return (1 - t) * one_hot[lower] + t * one_hot[upper]
