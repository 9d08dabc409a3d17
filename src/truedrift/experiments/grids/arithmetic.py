"""{abc-release, bidirectional, bidirectional-loo, row} × {standard, ABC, ABC-2} at n = 8 (`arithmetic`, new).

Does the correction help in every arithmetic, and how much of a published difference is the arithmetic's? The published
one (abc-release) is defined on unit features alone, so that every cell has feature_scale standardize-l2, whatever the
recipe has: the cells differ in nothing but the arithmetic and the estimator.
"""

from __future__ import annotations

from truedrift.experiments.grids.grounds import Ground
from truedrift.experiments.grids.plan import Task

N = 8
ARITHMETICS = {
    "abc-release": {"arithmetic": "abc-release", "normalization": "bidirectional"},
    "bidirectional": {"arithmetic": "stable", "normalization": "bidirectional"},
    "bidirectional-loo": {"arithmetic": "stable", "normalization": "bidirectional-loo"},
    "row": {"arithmetic": "stable", "normalization": "row"},
}
ESTIMATORS = ("standard", "abc", "abc2")


def tasks(ground: Ground) -> list[Task]:
    """Every cell with every seed."""
    return [
        Task(
            variant=f"{name}/{estimator}",
            config=ground.config(
                n=N,
                seed=seed,
                estimator_pos=estimator,
                estimator_neg=estimator,
                feature_scale="standardize-l2",
                **options,
            ),
        )
        for name, options in ARITHMETICS.items()
        for estimator in ESTIMATORS
        for seed in ground.seeds
    ]
