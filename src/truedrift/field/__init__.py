"""(x, y⁺, y⁻) → V: affinities, the weights of both sides and the drifting field."""

from truedrift.field.affinity import SideWeights, log_affinity, log_kernels, mean_square, side_weights, sum_normalized
from truedrift.field.batch import batch_weights
from truedrift.field.drift import Drift, drift
from truedrift.field.spec import (
    CENTROID_FORMS,
    FORMS,
    JOINT_NORMALIZATIONS,
    NORMALIZATIONS,
    WEIGHTINGS,
    FieldSpec,
    Form,
    Normalization,
)

__all__ = [
    "CENTROID_FORMS",
    "FORMS",
    "JOINT_NORMALIZATIONS",
    "NORMALIZATIONS",
    "WEIGHTINGS",
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
