"""Features → loss: scaling, the drift loss of all groups at once, and the losses of the published code."""

from truedrift.objective.drift_loss import DriftLoss, drift_loss
from truedrift.objective.feature_scale import FEATURE_SCALES, FeatureScale
from truedrift.objective.published import abc_release_loss, official_loss
from truedrift.objective.report import DriftReport

__all__ = [
    "FEATURE_SCALES",
    "DriftLoss",
    "DriftReport",
    "FeatureScale",
    "abc_release_loss",
    "drift_loss",
    "official_loss",
]
