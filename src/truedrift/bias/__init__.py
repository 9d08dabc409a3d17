"""The laboratory: how biased a centroid of n references is, exactly, by theory and by Monte Carlo."""

from truedrift.bias.exact import Moments, exact_moments, exact_moments_of_several
from truedrift.bias.strata import StrataBias, exact_bias_of_strata

__all__ = ["Moments", "StrataBias", "exact_bias_of_strata", "exact_moments", "exact_moments_of_several"]
