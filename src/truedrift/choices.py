"""Values that options have by name, as types. This module needs no torch, so that the command line reads it fast."""

from typing import Literal

Estimator = Literal["standard", "abc", "abc2", "jackknife", "bootstrap"]
"""Estimators of training."""
Kernel = Literal["laplace", "gaussian"]
"""exp(−d/τ) and exp(−d²/2τ²)."""
Weights = Literal["ema", "model"]
"""Averaged weights, and weights of the last step."""
