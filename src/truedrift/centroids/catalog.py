"""Estimators by name."""

from __future__ import annotations

from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.estimator import Estimator, Standard
from truedrift.centroids.resampling import BRSNIS, Bootstrap, Jackknife
from truedrift.errors import UserError, require_choice

ESTIMATORS: dict[str, Estimator] = {
    each.name: each for each in (Standard(), ABC(), ABC2(), Jackknife(), Bootstrap(), BRSNIS())
}


def estimator(name: str | Estimator) -> Estimator:
    """The estimator of that name with the paper's settings, or the estimator itself."""
    if not isinstance(name, str):
        if isinstance(name, type) or not isinstance(name, Estimator):
            raise UserError(
                f"estimator is a {type(name).__name__}",
                f"allowed is a name ({', '.join(ESTIMATORS)}) or an object with name, bias_order, budget and reweight",
                "pass one of the names",
            )
        return name
    require_choice("estimator", name, ESTIMATORS)
    return ESTIMATORS[name]
