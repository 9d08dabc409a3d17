"""Where samples come from."""

from truedrift.data.arrays import read_arrays
from truedrift.data.toy import FOUR_MODES, THREE_CLUSTERS, GaussianMixture

__all__ = ["FOUR_MODES", "THREE_CLUSTERS", "GaussianMixture", "read_arrays"]
