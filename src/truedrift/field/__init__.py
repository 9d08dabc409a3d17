"""(x, y⁺, y⁻) → V: affinities, the two sides and the drifting field."""

from truedrift.field.affinity import (
    FORMS,
    NORMALIZATIONS,
    Form,
    Normalization,
    Sides,
    Weighting,
    combine,
    log_affinity,
    sides,
)
from truedrift.field.drift import Drift, drift

__all__ = [
    "FORMS",
    "NORMALIZATIONS",
    "Drift",
    "Form",
    "Normalization",
    "Sides",
    "Weighting",
    "combine",
    "drift",
    "log_affinity",
    "sides",
]
