"""(x, y⁺, y⁻) → V: affinities, the weights of both sides and the drifting field."""

from truedrift.field.affinity import (
    FORMS,
    NORMALIZATIONS,
    FieldSpec,
    Form,
    Normalization,
    SideWeights,
    batch_weights,
    log_affinity,
    log_kernels,
    mean_square,
    side_weights,
    sum_normalized,
)
from truedrift.field.drift import Drift, drift

__all__ = [
    "FORMS",
    "NORMALIZATIONS",
    "Drift",
    "FieldSpec",
    "Form",
    "Normalization",
    "SideWeights",
    "batch_weights",
    "drift",
    "log_affinity",
    "log_kernels",
    "mean_square",
    "side_weights",
    "sum_normalized",
]
