"""The bias of a centroid of n references: exactly, by theory, by Monte Carlo, and from a sample of references."""

from truedrift.bias.confidence import CALIBRATION, confidence_level
from truedrift.bias.diagnose import RequiredN, diagnose, smallest_n
from truedrift.bias.diagnosis import Diagnosis
from truedrift.bias.exact import Moments, StrataBias, exact_moments, exact_moments_by_estimator, exact_stratified_bias
from truedrift.bias.exact_field import ExactField, exact_field
from truedrift.bias.theory import compensation, effective_share, pool_moments
from truedrift.bias.trained_field import measure_trained_field

__all__ = [
    "CALIBRATION",
    "Diagnosis",
    "ExactField",
    "Moments",
    "RequiredN",
    "StrataBias",
    "compensation",
    "confidence_level",
    "diagnose",
    "effective_share",
    "exact_field",
    "exact_moments",
    "exact_moments_by_estimator",
    "exact_stratified_bias",
    "measure_trained_field",
    "pool_moments",
    "smallest_n",
]
