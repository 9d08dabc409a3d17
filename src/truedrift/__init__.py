"""truedrift: one-step generative models trained by drifting, with minibatch centroids whose bias is corrected.

The data's way through the system, which is also the tree:

    noise z, label c → generators → image → encoders → features x, y⁺, y⁻ → kernels → log w → centroids → γ
      → field → V → objective → loss → training → checkpoint → evaluation → metrics → records → report

The maths core (kernels, centroids, field, objective) needs torch alone.
"""

from truedrift.bias import Diagnosis, Moments, diagnose, exact_moments
from truedrift.centroids import abc_weights, centroid, estimator, streaming_centroid
from truedrift.field import Drift, drift
from truedrift.objective import DriftLoss, DriftReport, drift_loss

__version__ = "0.1.0"

__all__ = [
    "Diagnosis",
    "Drift",
    "DriftLoss",
    "DriftReport",
    "Moments",
    "__version__",
    "abc_weights",
    "centroid",
    "diagnose",
    "drift",
    "drift_loss",
    "estimator",
    "exact_moments",
    "streaming_centroid",
]
