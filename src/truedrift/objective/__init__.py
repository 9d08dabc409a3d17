"""Features → loss: scaling, the drift loss of all groups at once, and the published arithmetic."""

from truedrift.objective.drift_loss import DriftLoss, drift_loss
from truedrift.objective.report import DriftReport

__all__ = ["DriftLoss", "DriftReport", "drift_loss"]
