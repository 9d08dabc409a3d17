"""The laboratory: how biased a centroid of n references is, exactly, by theory and by Monte Carlo."""

from truedrift.bias.exact import Moments, exact_moments, exact_moments_of_several

__all__ = ["Moments", "exact_moments", "exact_moments_of_several"]
