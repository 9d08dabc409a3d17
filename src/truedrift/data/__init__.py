"""Where samples come from."""

from truedrift.data.toy import FOUR_MODES, THREE_CLUSTERS, GaussianMixture

__all__ = ["FOUR_MODES", "THREE_CLUSTERS", "GaussianMixture"]
