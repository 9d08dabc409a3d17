"""truedrift: one-step generative models trained by drifting, with minibatch centroids whose bias is corrected.

The data's way through the system, which is also the tree:

    noise z, label c → generators → image → encoders → features x, y⁺, y⁻ → kernels → log w → centroids → γ
      → field → V → objective → loss → training → checkpoint → evaluation → metrics → records → report

The maths core (kernels, centroids, field, objective) needs torch alone, and so does `import truedrift`: what trains is
imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from truedrift._version import __version__
from truedrift.bias import Diagnosis, Moments, diagnose, exact_moments
from truedrift.centroids import abc_weights, centroid, estimator, streaming_centroid
from truedrift.field import Drift, drift
from truedrift.objective import DriftLoss, DriftReport, drift_loss

if TYPE_CHECKING:
    from truedrift.recipes import recipe
    from truedrift.training import Parts, RunConfig
    from truedrift.training.train import train

__all__ = [
    "Diagnosis",
    "Drift",
    "DriftLoss",
    "DriftReport",
    "Moments",
    "Parts",
    "RunConfig",
    "__version__",
    "abc_weights",
    "centroid",
    "diagnose",
    "drift",
    "drift_loss",
    "estimator",
    "exact_moments",
    "recipe",
    "streaming_centroid",
    "train",
]

_ON_DEMAND = {
    "Parts": "truedrift.training",
    "RunConfig": "truedrift.training",
    "recipe": "truedrift.recipes",
    "train": "truedrift.training",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'truedrift' has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
