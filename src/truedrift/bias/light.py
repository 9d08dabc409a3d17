"""The light."""

from __future__ import annotations

from collections.abc import Sequence

from truedrift.bias.diagnosis import Light, Weights
from truedrift.bias.leave_out import Estimate


def light(estimates: Sequence[Estimate], closed: float, weights: Weights) -> Light:
    return Light(color="red", reason="?", uncertainty=estimates[1].noise, expansion=closed)
