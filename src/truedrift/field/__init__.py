"""(x, y⁺, y⁻) → V: affinities, the two sides and the drifting field."""

from truedrift.field.affinity import NORMALIZATIONS, Normalization, log_affinity
from truedrift.field.drift import Drift, drift
from truedrift.field.sides import FORMS, Form, Sides, Weighting, sides
from truedrift.field.temperatures import combine

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
