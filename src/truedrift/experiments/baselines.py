"""Bias, variance and time of the jackknife, the bootstrap, BR-SNIS and ABC (`tab:baselines`, `app:baselines`).

N = 50 000 points of the four modes, 200 queries N(0, 0.25 I), τ = 0.1, n = 4 … 256 drawn without replacement, 5 000
trials. The time of an estimate is that from log-weights and references to the centroid, one query at a time, as the
mean over estimates after the first ten.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import torch

from truedrift.axes import Tensor
from truedrift.bias import Moments, exact_moments_of_several
from truedrift.bias.monte_carlo import monte_carlo
from truedrift.bias.sampling.sample import Sample
from truedrift.centroids import estimator as estimator_of
from truedrift.centroids.base import weighted_mean
from truedrift.data import FOUR_MODES
from truedrift.experiments.study import Setting
from truedrift.kernels.kernel import laplace
from truedrift.records import Baseline, Baselines, provenance

TAU = 0.1
ESTIMATORS = ("standard", "jackknife", "bootstrap", "br-snis", "abc", "abc2")
EXACT = ("standard", "jackknife", "br-snis", "abc", "abc2")
SIZES = (4, 8, 16, 32, 64, 128, 256)
POOL_POINTS, QUERIES, TRIALS, TIMED, WARM_UP = 50_000, 200, 5_000, 500, 10
SMOKE_SIZES, SMOKE_POINTS, SMOKE_QUERIES, SMOKE_TRIALS, SMOKE_TIMED = (4, 8, 32), 2_000, 10, 400, 20


def study(setting: Setting) -> Baselines:
    """The whole table at `cpu` and `paper`; a small one at `smoke`."""
    small = setting.scale == "smoke"
    sizes, trials = (SMOKE_SIZES, SMOKE_TRIALS) if small else (SIZES, TRIALS)
    timed = SMOKE_TIMED if small else TIMED
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(setting.seed)
    pool = FOUR_MODES.sample(SMOKE_POINTS if small else POOL_POINTS, generator, dtype=torch.float64)
    x = 0.5 * torch.randn(SMOKE_QUERIES if small else QUERIES, 2, generator=generator, dtype=torch.float64)
    seconds = {(name, n): _seconds(x, pool, name, n, timed, generator) for name in ESTIMATORS for n in sizes}
    sampled = monte_carlo(
        x,
        pool,
        tau=TAU,
        n=sizes,
        trials=trials,
        estimators=ESTIMATORS,
        replacement=False,
        seed=setting.seed,
        progress=setting.progress,
        keep=setting.directory,
    )
    exact: Mapping[str, Moments] = exact_moments_of_several(
        x, pool, tau=TAU, n=sizes, estimators=EXACT, progress=setting.progress
    )
    return Baselines(
        pool_points=len(pool),
        queries=len(x),
        trials=trials,
        timed=timed,
        tau=TAU,
        rows=tuple(
            _row(name, k, sampled[name], exact.get(name), seconds[name, n])
            for k, n in enumerate(sizes)
            for name in ESTIMATORS
        ),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _row(name: str, k: int, sampled: Sample, exact: Moments | None, seconds: float) -> Baseline:
    variance = math.nan if exact is None else exact.variance[:, k].mean().item()
    return Baseline(
        n=sampled.n[k],
        estimator=name,
        references=estimator_of(name).budget(sampled.n[k]),
        bias=sampled.naive[:, k].mean().item(),
        noise=sampled.noise[:, k].mean().item(),
        corrected=sampled.corrected[:, k].mean().item(),
        variance=sampled.variance[:, k].mean().item(),
        exact_bias=None if exact is None else torch.linalg.vector_norm(exact.bias[:, k], dim=-1).mean().item(),
        exact_variance=None if math.isnan(variance) else variance,
        microseconds=1e6 * seconds,
    )


def _seconds(x: Tensor, pool: Tensor, name: str, n: int, timed: int, generator: torch.Generator) -> float:
    """The mean time of one estimate from log-weights [m] and references [m, 2]."""
    estimator = estimator_of(name)
    total = 0.0
    for trial in range(timed + WARM_UP):
        y = pool[torch.randperm(len(pool), generator=generator)[: estimator.budget(n)]]
        log_w = laplace(x[trial % len(x)].unsqueeze(0), y, TAU)
        start = time.perf_counter()
        weighted_mean(estimator.reweight(log_w, generator), y)
        total += time.perf_counter() - start if trial >= WARM_UP else 0.0
    return total / timed
