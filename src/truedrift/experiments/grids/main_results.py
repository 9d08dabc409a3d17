"""n × {standard, ABC} × seeds: `tab:main_results`, `fig:convergence`, `tab:samples_to_fid`; `tab:cifar100` likewise."""

from __future__ import annotations

from truedrift.experiments.grids.grounds import Ground
from truedrift.experiments.grids.plan import Task

ESTIMATORS = ("standard", "abc")


def tasks(ground: Ground) -> list[Task]:
    """Every n, estimator and seed; the longest runs, those of small n, come first."""
    return [
        Task(variant=name, config=ground.config(n=n, seed=seed, estimator_pos=name, estimator_neg=name))
        for n in sorted(ground.sizes)
        for name in ESTIMATORS
        for seed in ground.seeds
    ]
