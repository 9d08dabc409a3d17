"""The bias of a centroid of n references: exactly, by theory, by Monte Carlo, and from a sample of references."""

from truedrift.bias.diagnose import diagnose
from truedrift.bias.diagnosis import Diagnosis
from truedrift.bias.exact import Moments, StrataBias, exact_moments, exact_moments_by_estimator, exact_stratified_bias

__all__ = [
    "Diagnosis",
    "Moments",
    "StrataBias",
    "diagnose",
    "exact_moments",
    "exact_moments_by_estimator",
    "exact_stratified_bias",
]
