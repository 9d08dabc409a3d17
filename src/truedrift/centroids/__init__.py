"""log w → γ with Σγ = 1: the minibatch centroid and its bias corrections."""

from truedrift.centroids.analytical import ABC, ABC2, StratifiedABC, abc_weights
from truedrift.centroids.catalog import ESTIMATORS, estimator
from truedrift.centroids.centroid import centroid
from truedrift.centroids.estimator import AlphaEstimator, Estimator, Standard, weighted_mean
from truedrift.centroids.matching import Windowed, Windows
from truedrift.centroids.resampling import BRSNIS, Bootstrap, Jackknife
from truedrift.centroids.streaming import streaming_centroid

__all__ = [
    "ABC",
    "ABC2",
    "BRSNIS",
    "ESTIMATORS",
    "AlphaEstimator",
    "Bootstrap",
    "Estimator",
    "Jackknife",
    "Standard",
    "StratifiedABC",
    "Windowed",
    "Windows",
    "abc_weights",
    "centroid",
    "estimator",
    "streaming_centroid",
    "weighted_mean",
]
