"""The laboratory: how biased a centroid of n references is, exactly, by theory and by Monte Carlo."""

from truedrift.bias.diagnosis import Diagnosis
from truedrift.bias.exact import Moments, exact_moments, exact_moments_of_several
from truedrift.bias.gauge import diagnose

__all__ = ["Diagnosis", "Moments", "diagnose", "exact_moments", "exact_moments_of_several"]
