"""The laboratory: how biased a centroid of n references is, exactly, by theory and by Monte Carlo."""

from truedrift.bias.diagnose import diagnose
from truedrift.bias.diagnosis import Diagnosis
from truedrift.bias.exact import Moments, StrataBias, exact_bias_of_strata, exact_moments, exact_moments_of_several

__all__ = [
    "Diagnosis",
    "Moments",
    "StrataBias",
    "diagnose",
    "exact_bias_of_strata",
    "exact_moments",
    "exact_moments_of_several",
]
