"""‖E[T_n] − T*‖ for a named toy or a user's own pool: exactly, or by Monte Carlo for any estimator."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from truedrift.axes import Tensor
from truedrift.bias import exact, exact_moments_of_several
from truedrift.bias.monte_carlo import check, monte_carlo
from truedrift.bias.theory import pool_moments
from truedrift.centroids.catalog import ESTIMATORS
from truedrift.progress import Progress, silent
from truedrift.records import BiasAt, PoolBias, provenance
from truedrift.validation import mistake, require_choice, require_matrices, require_temperature


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a pool [N, D] at queries [Q, D]. `trials` asks for Monte Carlo."""

    name: str
    pool: Tensor
    queries: Tensor
    tau: float
    n: tuple[int, ...]
    estimators: tuple[str, ...]
    kernel: Literal["laplace", "gaussian"] = "laplace"
    trials: int | None = None
    replacement: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require_temperature(self.tau)
        require_matrices(queries=self.queries, pool=self.pool)
        if not self.n or min(self.n) < 1:
            raise mistake(f"n is {self.n}", "allowed is an integer from 1, or several", "take for example 8 64 512")
        allowed = exact.ESTIMATORS if self.trials is None else tuple(ESTIMATORS)
        for name in self.estimators:
            if self.trials is None and name in ESTIMATORS and name not in allowed:
                raise mistake(f"{name} has no exact form", f"exact are {', '.join(allowed)}", "add --trials 10000")
            require_choice("estimator", name, allowed)
        if self.trials is not None:
            chosen = [ESTIMATORS[name] for name in self.estimators]
            check(self.queries, self.pool, self.tau, self.n, self.trials, chosen, self.replacement, self.seed)
        elif not self.replacement:
            raise mistake("draws are without replacement", "exact is with replacement", "add --trials 10000")


def answer(question: Question, progress: Progress = silent) -> PoolBias:
    """The bias of every estimator at every n."""
    start = time.perf_counter()
    rows = _exact(question, progress) if question.trials is None else _sampled(question, question.trials, progress)
    spread, share = _spread_and_share(question)
    return PoolBias(
        pool=question.name,
        pool_points=len(question.pool),
        dimensions=question.pool.shape[1],
        queries=len(question.queries),
        tau=question.tau,
        kernel=question.kernel,
        trials=question.trials,
        replacement=question.replacement,
        spread=spread,
        n_eff_share=share,
        rows=tuple(rows),
        provenance=provenance(seed=question.seed, wall_seconds=time.perf_counter() - start),
    )


def _exact(question: Question, progress: Progress) -> Iterator[BiasAt]:
    found = exact_moments_of_several(
        question.queries,
        question.pool,
        tau=question.tau,
        n=question.n,
        estimators=question.estimators,
        kernel=question.kernel,
        progress=progress,
    )
    for name, moments in found.items():
        norm = torch.linalg.vector_norm(moments.bias, dim=-1)
        for k, n in enumerate(moments.n):
            noise = moments.variance[:, k].clamp_min(0).sqrt().mean().item()  # NaN where it has no exact form
            yield BiasAt(
                n=n,
                estimator=name,
                bias=norm[:, k].mean().item(),
                error=moments.error[:, k].mean().item(),
                noise=None if math.isnan(noise) else noise,
            )


def _sampled(question: Question, trials: int, progress: Progress) -> Iterator[BiasAt]:
    found = monte_carlo(
        question.queries,
        question.pool,
        tau=question.tau,
        n=question.n,
        trials=trials,
        estimators=question.estimators,
        kernel=question.kernel,
        replacement=question.replacement,
        seed=question.seed,
        progress=progress,
    )
    for name, sample in found.items():
        for k, n in enumerate(sample.n):
            yield BiasAt(
                n=n,
                estimator=name,
                bias=sample.corrected[:, k].mean().item(),
                error=(sample.error[:, k].square().sum().sqrt() / len(sample.bias)).item(),
                noise=sample.variance[:, k].sqrt().mean().item(),
            )


def _spread_and_share(question: Question) -> tuple[float, float]:
    """Means over queries of √(E‖y − T*‖²) and of 1/λ."""
    moments = pool_moments(question.queries, question.pool, tau=question.tau, kernel=question.kernel)
    pool = question.pool.double()
    around_mean = (pool - moments.mean).square().sum(-1).mean()
    away = (moments.T_star - moments.mean).square().sum(-1)
    return (around_mean + away).sqrt().mean().item(), moments.n_eff(1).mean().item()
