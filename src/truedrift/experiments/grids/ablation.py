"""Which side is corrected: none / positive / negative / both at n = 8 (`fig:ablation_trajectory`).

`none` and `both` are runs of `tab:main_results` too.
"""

from __future__ import annotations

from truedrift.experiments.grids.grounds import Ground
from truedrift.experiments.grids.plan import Task

N = 8
SIDES = {
    "none": ("standard", "standard"),
    "positive": ("abc", "standard"),
    "negative": ("standard", "abc"),
    "both": ("abc", "abc"),
}
"""The estimators of the positive and the negative side."""


def tasks(ground: Ground) -> list[Task]:
    """Every variant with every seed."""
    return [
        Task(variant=variant, config=ground.config(n=N, seed=seed, estimator_pos=pos, estimator_neg=neg))
        for variant, (pos, neg) in SIDES.items()
        for seed in ground.seeds
    ]
