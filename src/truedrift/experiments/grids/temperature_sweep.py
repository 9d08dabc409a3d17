"""All temperatures × {1/4, 1/2, 1, 2, 4} × {standard, ABC} at n = 8 (`temperature-sweep`, new).

The paper takes the temperatures that were found best for the plain centroid. A larger τ has more effective references
and so less bias; once the bias is gone, the best τ may be a smaller one. At factor 1 these are runs of
`tab:main_results`.
"""

from __future__ import annotations

from truedrift.experiments.grids.grounds import Ground
from truedrift.experiments.grids.plan import Task

N = 8
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
ESTIMATORS = ("standard", "abc")


def tasks(ground: Ground) -> list[Task]:
    """Every estimator at every factor with every seed."""
    return [_task(ground, name, factor, seed) for name in ESTIMATORS for factor in FACTORS for seed in ground.seeds]


def _task(ground: Ground, name: str, factor: float, seed: int) -> Task:
    own = ground.config(n=N, seed=seed).objective.temperatures
    temperatures = [factor * tau for tau in own]
    config = ground.config(n=N, seed=seed, estimator_pos=name, estimator_neg=name, temperatures=temperatures)
    return Task(variant=f"{name}/{factor:g}", config=config)
