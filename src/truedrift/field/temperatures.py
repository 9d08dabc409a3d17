"""V = Σ_τ V_τ / √(mean V_τ² + ε): fields of several temperatures, each normalized by its RMS, then summed.

The mean runs over the queries and the D coordinates of a group (a class at a feature scale). Sharp kernels see few
references and give small forces; without the normalization the widest kernel would drown them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from truedrift.axes import Float, Tensor

EPSILON = 1e-8
"""ε inside the root, as in the published code."""


def mean_square(V: Float[Tensor, "*batch B D"]) -> Float[Tensor, "*batch 1 1"]:
    """mean V² over queries and coordinates."""
    return V.square().mean((-2, -1), keepdim=True)


def combine(V: Float[Tensor, "*batch T B D"]) -> Float[Tensor, "*batch B D"]:
    """Σ_τ V_τ / √(mean V_τ² + ε)."""
    return (V * (mean_square(V) + EPSILON).rsqrt()).sum(-3)


def log_kernels(distance: Float[Tensor, "*batch B n"], temperatures: Sequence[float]) -> Float[Tensor, "*batch T B n"]:
    """log k = −d/τ at every temperature."""
    minus_tau = torch.tensor([-tau for tau in temperatures], dtype=distance.dtype).view(-1, 1, 1)
    return distance.unsqueeze(-3) / minus_tau.to(distance.device, non_blocking=True)  # no waiting for the device
