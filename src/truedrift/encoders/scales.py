"""Groups of different D_s as one tensor [S, B, D], D = max D_s, for a loss that takes all groups at once.

Zeros after a feature change no distance, but the RMS and the mean of the drift loss run over n·D numbers. With V_τ/RMS
and ∂loss/∂f = −2V/(nD), a zero dimension more makes the gradient of a group smaller by √(D_s/D) where features are
used as they are or as unit vectors. Where they are divided by s/√D, for the mean distance s, the two changes cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.validation import mistake, require_choice

_SHRINKS = {"standardize-l2": True, "none": True, "mean-distance": False}
"""Whether padding makes the gradient smaller, by the drift loss's `feature_scale`."""


def stack(features: Sequence[Float[Tensor, "B _"]]) -> Float[Tensor, "S B D"]:
    """[S, B, D] of groups [B, D_s]: zeros after the narrower ones."""
    if not features:
        raise mistake("features is empty", "allowed is one group or more", "pass what an encoder returned")
    widest = max(group.shape[-1] for group in features)
    return torch.stack([F.pad(group, (0, widest - group.shape[-1])) for group in features])


def gradient_weights(dimensions: Sequence[int], feature_scale: str) -> list[float]:
    """The factor of each group's loss after `stack` that gives back the gradient it has alone: √(D/D_s), or 1.

    Exact but for the 1e-8 beside the mean square in the RMS, and while the mean distance is above its floor of 1e-3.
    """
    require_choice("feature_scale", feature_scale, _SHRINKS)
    widest = max(dimensions)
    return [math.sqrt(widest / D) if _SHRINKS[feature_scale] else 1.0 for D in dimensions]
