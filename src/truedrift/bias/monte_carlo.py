"""Bias and variance of any centroid estimator by repeated trials: M minibatches of n for every query (`app:toy`).

    ē = (1/M) Σ_t T_t − T*,   Σ̂ = Cov(T_t),   T* the centroid of the whole pool,

and from them estimates of the norm of the bias:

    naive      ‖ē‖                             inflated by the noise √(tr Σ̂/M) (`app:baselines`)
    corrected  b̂ = √max(0, b̂²),  b̂² = ‖ē‖² − tr Σ̂/M   (`app:toy`)

b̂² is unbiased; b̂ is not where the noise is as large as the bias. The variance of b̂² is 4 bᵀΣb/M + 2 tr Σ²/M², where
ēᵀΣ̂ē − tr Σ̂²/M replaces bᵀΣb.

Trials are a pure function of (seed, query, draws of a minibatch). Estimators that draw equally many references get the
same minibatches, and memory does not grow with M. The weights of all pool points are computed once per query and then
looked up. The estimators of this library have compiled forms (`trials`), of which standard, ABC and ABC-2 share one
pass over a minibatch. Other estimators get their log-weights block by block.

If a directory is given, the sums of each finished query are cached in a file (`TrialCache`). The same call resumes from
there and gives identical results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.checks import read_sizes, require_distinct, require_points, require_seed
from truedrift.bias.trials import (
    BOOTSTRAP,
    BR_SNIS,
    JACKKNIFE,
    LARGEST_RANGE,
    POWER_SUMS,
    Rule,
    Table,
    accumulate,
    block_count,
    draw,
    stream_key,
)
from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import Estimator, Standard
from truedrift.centroids.resampling import BRSNIS, Bootstrap, Jackknife
from truedrift.errors import UserError, require_integer
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.progress import Progress, no_progress
from truedrift.storage import append_json_line, read_json_lines
from truedrift.tensor_checks import require_finite

Sums = tuple[Tensor, Tensor]
"""(Σ e [len(n), D], Σ e eᵀ [len(n), D, D]) over trials."""


@dataclass(frozen=True)
class TrialMoments:
    """Moments of one estimator over M trials at every query and every n."""

    n: tuple[int, ...]
    trials: int
    T_star: Tensor
    """[Q, D] the target, the centroid of the whole pool."""
    bias: Tensor
    """[Q, len(n), D] ē, the mean over trials of T − T*."""
    covariance: Tensor
    """[Q, len(n), D, D] Σ̂ over trials."""

    @property
    def variance(self) -> Float[Tensor, "Q S"]:
        """tr Σ̂."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).sum(-1)

    @property
    def noise(self) -> Float[Tensor, "Q S"]:
        """√(tr Σ̂/M): the root mean square of ‖ē‖ if there is no bias."""
        return (self.variance / self.trials).sqrt()

    @property
    def naive(self) -> Float[Tensor, "Q S"]:
        """‖ē‖."""
        return torch.linalg.vector_norm(self.bias, dim=-1)

    @property
    def squared(self) -> Float[Tensor, "Q S"]:
        """‖ē‖² − tr Σ̂/M: unbiased for ‖bias‖²; may be negative."""
        return self.naive.square() - self.noise.square()

    @property
    def corrected(self) -> Float[Tensor, "Q S"]:
        """b̂ (`app:toy`)."""
        return self.squared.clamp_min(0).sqrt()

    @property
    def error(self) -> Float[Tensor, "Q S"]:
        """Standard error of ‖ē‖ along ē: √(ēᵀΣ̂ē/M)/‖ē‖."""
        return (self._along() / self.trials).sqrt() / self.naive.clamp_min(torch.finfo(self.bias.dtype).tiny)

    @property
    def squared_error(self) -> Float[Tensor, "Q S"]:
        """Standard error of b̂²."""
        chance = self.covariance.square().sum((-2, -1)) / self.trials**2
        return (4 * self._along() / self.trials - 2 * chance).maximum(2 * chance).sqrt()

    def _along(self) -> Tensor:
        """ēᵀΣ̂ē."""
        return torch.einsum("...d,...df,...f->...", self.bias, self.covariance, self.bias)


def trial_moments(n: tuple[int, ...], trials: int, T_star: Tensor, first: Tensor, second: Tensor) -> TrialMoments:
    """Compute the moments from Σ_t e_t [Q, len(n), D] and Σ_t e_t e_tᵀ [Q, len(n), D, D]."""
    mean = first / trials
    covariance = (second - trials * mean.unsqueeze(-1) * mean.unsqueeze(-2)) / (trials - 1)
    return TrialMoments(n, trials, T_star, mean, covariance)


class TrialCache:
    """Sums of finished queries, in a file with one line of JSON per query, or in memory if `path` is None.

    JSON keeps every digit of a float. An incomplete last line is ignored, and its query is computed again.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.sums: dict[int, dict[str, Sums]] = {}
        as_tensor = partial(torch.tensor, dtype=torch.float64)
        for entry in read_json_lines(path) if path else ():
            pairs = entry["sums"].items()
            self.sums[entry["query"]] = {name: (as_tensor(first), as_tensor(second)) for name, (first, second) in pairs}

    def read_or_compute(self, query: int, compute: Callable[[], dict[str, Sums]]) -> dict[str, Sums]:
        """Return the sums of a query, by name; compute and store them if they are not cached."""
        if query not in self.sums:
            self.sums[query] = sums = compute()
            if self.path is not None:
                plain = {name: [each.tolist() for each in pair] for name, pair in sums.items()}
                append_json_line(self.path, {"query": query, "sums": plain})
        return self.sums[query]


def cache_path(directory: Path, settings: tuple[Any, ...], *tensors: Tensor) -> Path:
    """Return the file of a cache, named by a hash of everything that the sums depend on; make its directory."""
    digest = hashlib.sha256(repr(settings).encode())
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"trials-{digest.hexdigest()[:16]}.jsonl"


_ELEMENTS = 1 << 18
"""Log-weights per call of an estimator; one that resamples needs a hundred times as much memory."""


def monte_carlo(
    x: Float[Tensor, "Q D"],
    pool: Float[Tensor, "N D"],
    *,
    tau: float,
    n: int | Sequence[int],
    trials: int,
    estimators: Sequence[str | Estimator] = ("standard", "abc", "abc2"),
    kernel: str | LogKernel = "laplace",
    replacement: bool = True,
    seed: int = 0,
    progress: Progress = no_progress,
    keep: Path | None = None,
) -> dict[str, TrialMoments]:
    """Measure the moments of estimators over minibatches from the pool.

    Args:
        x: Queries.
        pool: The pool that references are drawn from.
        tau: The temperature of the kernel.
        n: The number of references per centroid, or several. Estimators that need more (BR-SNIS) draw their budget.
        trials: The number of minibatches per query and n.
        estimators: Names or estimators.
        kernel: A name, or a function (x, y, tau) → log k.
        replacement: Whether to draw with replacement.
        seed: The seed of the draws.
        progress: Called with the number of draws that are done.
        keep: A directory that caches finished queries.

    Returns:
        The moments of each estimator, by its name.

    Raises:
        UserError: If an argument is not valid.
    """
    # Check the arguments
    chosen = [estimator_of(estimator) for estimator in estimators]
    require_points(tau, x=x, pool=pool)
    sizes = read_sizes(n)
    trials = require_integer("trials", trials, 2, 200_000)
    require_seed(seed)
    require_distinct([each.name for each in chosen])
    most = max(each.budget(size) for each in chosen for size in sizes)
    if not replacement and most > len(pool):
        raise UserError(
            f"{most} references cannot be drawn without replacement from a pool of {len(pool)}",
            f"must be at most {len(pool)}",
            "draw with replacement, or fewer references",
        )
    # Prepare the task, and what is cached of it
    x, pool = (each.detach().to("cpu", torch.float64) for each in (x, pool))
    task = _Task(pool, tau, sizes, trials, chosen, log_kernel(kernel), replacement, seed)
    cached = TrialCache(None if keep is None else task.cache_path(keep, x))
    work = sum(each.budget(size) for each in chosen for size in sizes) * trials
    # Sum over the trials of each query
    T_star, sums = [], []
    for q, query in enumerate(x):
        progress("Monte Carlo", q * work, len(x) * work)
        at = _TaskAtQuery(task, query, q)
        T_star.append(at.T_star)
        sums.append(cached.read_or_compute(q, at.sums))
    progress("Monte Carlo", len(x) * work, len(x) * work)
    targets = torch.stack(T_star)
    by_estimator = {
        each.name: map(torch.stack, zip(*(by_name[each.name] for by_name in sums), strict=True)) for each in chosen
    }
    return {name: trial_moments(sizes, trials, targets, *both) for name, both in by_estimator.items()}


@dataclass(frozen=True)
class _Task:
    pool: Tensor
    tau: float
    n: tuple[int, ...]
    trials: int
    estimators: list[Estimator]
    kernel: LogKernel
    replacement: bool
    seed: int

    def cache_path(self, directory: Path, x: Tensor) -> Path:
        """Return the file of the cache; the kernel enters through its values at the first query."""
        estimators = [(type(each).__qualname__, repr(each)) for each in self.estimators]
        settings = (self.tau, self.n, self.trials, estimators, self.replacement, self.seed)
        return cache_path(directory, settings, x, self.pool, _TaskAtQuery(self, x[0], 0).log_w)


class _TaskAtQuery:
    """A task at one query, with the weights of all pool points."""

    def __init__(self, task: _Task, x: Tensor, query: int) -> None:
        self.task, self.query = task, query
        (log_w,) = task.kernel(x.unsqueeze(0), task.pool, task.tau).to(torch.float64)
        require_finite(**{"the kernel's logarithm over the pool": log_w})
        self.log_w = log_w - log_w.max()
        self.w = self.log_w.exp()
        self.T_star = self.w @ task.pool / self.w.sum()

    def sums(self) -> dict[str, Sums]:
        """Return Σ e and Σ e eᵀ of every estimator at every n."""
        fits_float32 = float(self.log_w.min()) > -LARGEST_RANGE
        run_compiled = cache(self._run_compiled)  # once for several estimators
        sums = {}
        for each in self.task.estimators:
            rule = _rule(each) if fits_float32 else None
            sums[each.name] = self._run_estimator(each) if rule is None else _output(run_compiled(rule), each)
        return sums

    def _run_compiled(self, rule: Rule) -> Sums:
        """Return Σ e [len(n), outputs, D] and Σ e eᵀ [len(n), outputs, D, D] by compiled code."""
        table, residue = self._table
        # Run the trials of each n
        trials, results = self.task.trials, []
        blocks = block_count(trials, rule.outputs * self.T_star.numel() ** 2)
        for n in self.task.n:
            m = rule.settings[0] * (n - 1) + 1 if rule.kind == BR_SNIS else n
            by_block = accumulate(
                table, rule, m, trials, self._key(0, m), self._key(1, m), self.task.replacement, blocks
            )
            results.append([each.sum(0) for each in by_block])
        first, second = (torch.stack([torch.from_numpy(sums[k]) for sums in results]) for k in (0, 1))
        # Subtract the T* of the rounded table from e
        cross = first.unsqueeze(-1) * residue
        second = second - cross - cross.mT + trials * residue.unsqueeze(-1) * residue
        return first - trials * residue, second

    @cached_property
    def _table(self) -> tuple[Table, Tensor]:
        """The table (w, y − T*) of all points in float32, and Σ w (y − T*)/Σ w of the rounded values."""
        N, D = self.task.pool.shape
        array = np.empty((N, 1 + D), np.float32)  # NumPy allocates large pages, which speed up look-ups
        table = torch.from_numpy(array)
        table[:, 0] = self.w
        table[:, 1:] = self.task.pool - self.T_star
        w, y = table[:, 0].double(), table[:, 1:].double()
        return array, w @ y / w.sum()

    def _run_estimator(self, estimator: Estimator) -> Sums:
        """Return Σ e [len(n), D] and Σ e eᵀ [len(n), D, D] by the `reweight` method of the estimator."""
        task, centered = self.task, self.task.pool - self.T_star
        N, D = centered.shape
        first, second = (torch.zeros(len(task.n), *shape, dtype=torch.float64) for shape in ((D,), (D, D)))
        for k, n in enumerate(task.n):
            m = estimator.budget(n)
            generator = torch.Generator().manual_seed(int(self._key(1, m)) >> 33)
            block = max(1, _ELEMENTS // m)
            for begin in range(0, task.trials, block):
                # Draw minibatches, and compute their centroids
                some = min(block, task.trials - begin)
                drawn = torch.from_numpy(draw(self._key(0, m), begin, some, m, N, task.replacement).astype("int64"))
                gamma = estimator.reweight(self.log_w[drawn], generator).to(torch.float64)
                e = (gamma.unsqueeze(-2) @ centered[drawn]).squeeze(-2)
                first[k] += e.sum(0)
                second[k] += e.mT @ e
        return first, second

    def _key(self, purpose: int, m: int) -> np.uint64:
        return stream_key(self.task.seed, purpose, self.query, m)


def _rule(estimator: Estimator) -> Rule | None:
    """Return the compiled form of an estimator of this library; None for other estimators and subclasses."""
    if type(estimator) not in (Standard, ABC, ABC2, Jackknife, Bootstrap, BRSNIS):
        return None
    match estimator:
        case Jackknife():
            return JACKKNIFE
        case Bootstrap():
            return Rule(BOOTSTRAP, 1, (estimator.resamples, 0))
        case BRSNIS():
            return Rule(BR_SNIS, 1, (estimator.iterations, estimator.burn_in))
    return POWER_SUMS


def _output(sums: Sums, estimator: Estimator) -> Sums:
    """Select the output of the rule that belongs to the estimator."""
    k = 1 if isinstance(estimator, ABC) else 2 if isinstance(estimator, ABC2) else 0
    first, second = sums
    return first[:, k], second[:, k]
