"""‖E[T_n] − T*‖ against n on four modes, exactly and by the paper's protocol (`fig:bias_loglog`, `app:toy`).

A pool of N = 10⁶ points, 200 queries from the same distribution, n = 4 … 512 drawn with replacement, τ = 0.1 and 0.2.
The exact curves always have that size. By Monte Carlo: 200 000 trials for every query and n at `paper`, 5 000 at `cpu`,
and 500 at 20 of the queries at `smoke`.

Beside the figure two claims are measured on exact values: that the bias points from the nearest mode to the global mean
(the contraction), and that ABC never exceeds standard. The theorem itself only says that it points away from where the
largest weights are, which is the query.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import Moments, exact_moments_of_several
from truedrift.bias.monte_carlo import monte_carlo
from truedrift.bias.sampling.sample import Sample
from truedrift.data import FOUR_MODES
from truedrift.experiments.study import Scale, Setting
from truedrift.progress import Progress
from truedrift.records import BiasCurve, BiasCurves, Contraction, SampledPoints, provenance

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.1, 0.2)
ESTIMATORS = ("standard", "abc", "abc2")
POOL_POINTS, QUERIES = 1_000_000, 200
TRIALS: dict[Scale, int] = {"smoke": 500, "cpu": 5_000, "paper": 200_000}
SAMPLED_QUERIES: dict[Scale, int] = {"smoke": 20, "cpu": QUERIES, "paper": QUERIES}


def toy(seed: int) -> tuple[Float[Tensor, "N 2"], Float[Tensor, "Q 2"]]:
    """The pool and the queries."""
    generator = torch.Generator().manual_seed(seed)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (POOL_POINTS, QUERIES))
    return pool, x


def study(setting: Setting) -> BiasCurves:
    """The figure at the scale of the setting."""
    return run(setting, TRIALS[setting.scale])


def run(setting: Setting, trials: int) -> BiasCurves:
    """The exact curves, and Monte-Carlo points unless `trials` is 0."""
    start = time.perf_counter()
    pool, x = toy(setting.seed)
    exact = {
        tau: exact_moments_of_several(
            x, pool, tau=tau, n=SIZES, estimators=ESTIMATORS, progress=_at(tau, setting.progress)
        )
        for tau in TEMPERATURES
    }
    between = time.perf_counter()
    some = x[: SAMPLED_QUERIES[setting.scale]]
    sampled = {tau: _sampled(some, pool, tau, trials, setting) if trials else {} for tau in TEMPERATURES}
    end = time.perf_counter()
    return BiasCurves(
        pool_points=len(pool),
        queries=len(x),
        trials=trials,
        n=SIZES,
        curves=tuple(
            _curve(tau, name, exact[tau][name], sampled[tau].get(name)) for tau in TEMPERATURES for name in ESTIMATORS
        ),
        contractions=tuple(_contraction(tau, exact[tau], x, pool.mean(0)) for tau in TEMPERATURES),
        exact_seconds=between - start,
        sampled_seconds=end - between,
        provenance=provenance(seed=setting.seed, wall_seconds=end - start),
    )


def _sampled(x: Tensor, pool: Tensor, tau: float, trials: int, setting: Setting) -> dict[str, Sample]:
    return monte_carlo(
        x,
        pool,
        tau=tau,
        n=SIZES,
        trials=trials,
        estimators=ESTIMATORS,
        seed=setting.seed,
        progress=_at(tau, setting.progress),
        keep=setting.directory,
    )


def _at(tau: float, progress: Progress) -> Progress:
    """Says the temperature too."""
    return lambda what, done, total: progress(f"{what}, τ = {tau:g}", done, total)


def _curve(tau: float, name: str, exact: Moments, sampled: Sample | None) -> BiasCurve:
    norm = torch.linalg.vector_norm(exact.bias, dim=-1)
    return BiasCurve(
        tau=tau,
        estimator=name,
        exact=_mean(norm),
        exact_error=_mean(exact.error),
        points=None if sampled is None else _points(norm[: len(sampled.bias)], sampled),
    )


def _points(exact: Float[Tensor, "Q S"], sampled: Sample) -> SampledPoints:
    return SampledPoints(
        bias=_mean(sampled.corrected),
        error=_error_of_mean(sampled.error),
        noise=_mean(sampled.noise),
        square=_mean(sampled.squared),
        square_error=_error_of_mean(sampled.squared_error),
        exact_square=_mean(exact.square()),
    )


def _contraction(tau: float, exact: Mapping[str, Moments], x: Tensor, mean: Tensor) -> Contraction:
    standard = exact["standard"]
    T_star = standard.T_star.unsqueeze(1)  # [Q, 1, D]
    modes = torch.tensor(FOUR_MODES.means, dtype=torch.float64)
    nearest = modes[torch.cdist(standard.T_star, modes).argmin(-1)].unsqueeze(1)
    norms = {name: torch.linalg.vector_norm(each.bias, dim=-1) for name, each in exact.items()}
    return Contraction(
        tau=tau,
        away_from_query=_share((standard.bias * (x.unsqueeze(1) - T_star)).sum(-1) < 0),
        away_from_mode=_share((standard.bias * (nearest - T_star)).sum(-1) < 0),
        toward_mean=_share((standard.bias * (mean - T_star)).sum(-1) > 0),
        abc_exceeds=_share(norms["abc"] > norms["standard"]),
    )


def _mean(values: Float[Tensor, "Q S"]) -> tuple[float, ...]:
    return tuple(values.mean(0).tolist())


def _share(true: Tensor) -> tuple[float, ...]:
    return _mean(true.double())


def _error_of_mean(errors: Float[Tensor, "Q S"]) -> tuple[float, ...]:
    """Of the mean over queries, whose trials are independent."""
    return tuple((errors.square().sum(0).sqrt() / len(errors)).tolist())
