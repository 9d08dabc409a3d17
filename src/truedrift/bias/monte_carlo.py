"""Bias and variance of any centroid estimator by repeated trials: M minibatches of n for every query (`app:toy`).

    ē = (1/M) Σ_t T_t − T*,   Σ̂ = Cov(T_t),   T* the centroid of the whole pool.

Trials are a pure function of (seed, query, draws of a minibatch). Estimators that draw equally many references see the
same minibatches, and memory does not grow with M. The weights of all pool points are computed once per query and then
looked up. The estimators of this library have compiled forms (`trials`), of which standard, ABC and ABC-2 share one
pass over a minibatch. Other estimators get their log-weights block by block.

If a directory is given, the sums of each finished query are cached in a file (`TrialCache`). The same call resumes from
there, and ends with the same digits. The file is named by a hash of everything that the sums depend on, so other
settings have another file. It has one line per query. JSON keeps every digit of a float. Incomplete lines are ignored,
and their queries computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.trial_moments import TrialMoments, trial_moments
from truedrift.bias.trials import (
    BR_SNIS,
    JACKKNIFE,
    LARGEST_RANGE,
    POWER_SUMS,
    Rule,
    Table,
    accumulate,
    bootstrap_rule,
    br_snis_rule,
    compile_now,
    draw,
    stream_key,
)
from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import Estimator, Standard
from truedrift.centroids.resampling import BRSNIS, Bootstrap, Jackknife
from truedrift.errors import UserError, require_finite, require_matrices, require_temperature
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.progress import Progress, no_progress
from truedrift.storage import append_json_line, read_json_lines

Sums = tuple[Tensor, Tensor]
"""(Σ e [len(n), D], Σ e eᵀ [len(n), D, D]) over trials."""


def fingerprint(settings: tuple[Any, ...], *tensors: Tensor) -> str:
    """Return a hash of the settings, by their repr, and of the tensors."""
    digest = hashlib.sha256(repr(settings).encode())
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


class TrialCache:
    """Sums of finished queries in a file: for each name, sums of the given shape."""

    def __init__(self, directory: Path, fingerprint: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"trials-{fingerprint[:16]}.jsonl"
        self.sums = dict(filter(None, (_query(entry, shapes) for entry in read_json_lines(self.path))))

    def read(self, query: int) -> dict[str, Sums] | None:
        """Return the sums of a query, or None if they are not cached."""
        return self.sums.get(query)

    def add(self, query: int, sums: Mapping[str, Sums]) -> None:
        """Append the sums of a query."""
        plain = {name: [each.tolist() for each in pair] for name, pair in sums.items()}
        append_json_line(self.path, {"query": query, "sums": plain})


def _query(entry: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, dict[str, Sums]] | None:
    """Return the query and sums of one line of the cache; None if they do not have these names and shapes."""
    try:
        sums = {name: _sums(entry["sums"][name], shape) for name, shape in shapes.items()}
        return int(entry["query"]), sums
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _sums(pair: Any, shape: tuple[int, ...]) -> Sums:
    first, second = (torch.tensor(each, dtype=torch.float64) for each in pair)
    if first.shape != shape or second.shape != (*shape, shape[-1]):
        raise ValueError("the sums have another shape")
    return first, second


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
        n: The number of references of a centroid, or several. Estimators that need more (BR-SNIS) draw their budget.
        trials: The number of minibatches per query and n.
        estimators: Names or estimators.
        kernel: A name, or a function (x, y, tau) → log k.
        replacement: Whether to draw with replacement.
        seed: The seed of the draws.
        progress: Called with the number of draws that are done.
        keep: A directory that caches finished queries.

    Returns:
        The moments of each estimator, by its name.
    """
    chosen = [estimator_of(estimator) for estimator in estimators]
    sizes = (n,) if isinstance(n, int) else tuple(n)
    check(x, pool, tau, sizes, trials, chosen, replacement, seed)
    task = _Task(
        pool.detach().to("cpu", torch.float64), tau, sizes, trials, chosen, log_kernel(kernel), replacement, seed
    )
    x = x.detach().to("cpu", torch.float64)
    shape = (len(sizes), x.shape[1])
    cache = None if keep is None else TrialCache(keep, _fingerprint(task, x), {each.name: shape for each in chosen})
    work = sum(each.budget(size) for each in chosen for size in sizes) * trials
    T_star, sums = [], []
    progress("Monte Carlo", 0, len(x) * work)
    compile_now()  # so that it does not count as time of the first query
    for q, query in enumerate(x):
        progress("Monte Carlo", q * work, len(x) * work)
        problem = task.at(query, q)
        T_star.append(problem.T_star)
        cached = cache.read(q) if cache else None
        sums.append(cached or problem.sums())
        if cache and not cached:
            cache.add(q, sums[-1])
    progress("Monte Carlo", len(x) * work, len(x) * work)
    targets = torch.stack(T_star)
    return {
        each.name: trial_moments(
            sizes, trials, targets, *map(torch.stack, zip(*(of[each.name] for of in sums), strict=True))
        )
        for each in chosen
    }


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

    def at(self, x: Tensor, query: int) -> _AtQuery:
        """Return the task at one query, with the weights of all pool points."""
        (log_w,) = self.kernel(x.unsqueeze(0), self.pool, self.tau).to(torch.float64)
        require_finite(**{"the kernel's logarithm over the pool": log_w})
        log_w = log_w - log_w.max()
        w = log_w.exp()
        return _AtQuery(self, query, log_w, w, w @ self.pool / w.sum())


@dataclass(frozen=True)
class _AtQuery:
    task: _Task
    query: int
    log_w: Tensor
    w: Tensor
    T_star: Tensor

    def sums(self) -> dict[str, Sums]:
        """Return Σ e and Σ e eᵀ of every estimator at every n."""
        fits = float(self.log_w.min()) > -LARGEST_RANGE
        rules = {each.name: _rule(each) if fits else None for each in self.task.estimators}
        of_rule = {rule: self._compiled(rule) for rule in set(rules.values()) if rule is not None}
        return {
            each.name: self._interpreted(each) if (rule := rules[each.name]) is None else _output(of_rule[rule], each)
            for each in self.task.estimators
        }

    def _compiled(self, rule: Rule) -> Sums:
        """Return Σ e [len(n), outputs, D] and Σ e eᵀ [len(n), outputs, D, D] by compiled code."""
        table, residue = self._table
        trials, results = self.task.trials, []
        for n in self.task.n:
            m = rule.settings[0] * (n - 1) + 1 if rule.kind == BR_SNIS else n
            keys = {"key": self._key(0, m), "own_key": self._key(1, m)}
            results.append(accumulate(table, rule, m, trials, replacement=self.task.replacement, **keys))
        first, second = (torch.stack([torch.from_numpy(sums[k]) for sums in results]) for k in (0, 1))
        cross = first.unsqueeze(-1) * residue  # subtract the T* of the rounded table from e
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

    def _interpreted(self, estimator: Estimator) -> Sums:
        first, second = zip(*(self._blocks(estimator, size) for size in self.task.n), strict=True)
        return torch.stack(first), torch.stack(second)

    def _blocks(self, estimator: Estimator, n: int) -> Sums:
        """Return Σ e [D] and Σ e eᵀ [D, D] by the `reweight` method of the estimator."""
        m, N = estimator.budget(n), len(self.task.pool)
        key = self._key(0, m)
        generator = torch.Generator().manual_seed(int(self._key(1, m)) >> 33)
        centered = self.task.pool - self.T_star
        D = centered.shape[-1]
        first, second = torch.zeros(D, dtype=torch.float64), torch.zeros(D, D, dtype=torch.float64)
        block = max(1, _ELEMENTS // m)
        for begin in range(0, self.task.trials, block):
            some = min(block, self.task.trials - begin)
            drawn = torch.from_numpy(draw(key, begin, some, m, N, self.task.replacement).astype("int64"))
            gamma = estimator.reweight(self.log_w[drawn], generator).to(torch.float64)
            e = (gamma.unsqueeze(-2) @ centered[drawn]).squeeze(-2)
            first, second = first + e.sum(0), second + e.mT @ e
        return first, second

    def _key(self, purpose: int, m: int) -> np.uint64:
        return stream_key(self.task.seed, purpose, self.query, m)


def _rule(estimator: Estimator) -> Rule | None:
    """Return the compiled form of an estimator of this library; None for other estimators and subclasses."""
    kind = type(estimator)
    if kind in (Standard, ABC, ABC2):
        return POWER_SUMS
    if kind is Jackknife:
        return JACKKNIFE
    if isinstance(estimator, Bootstrap) and kind is Bootstrap:
        return bootstrap_rule(estimator.resamples)
    if isinstance(estimator, BRSNIS) and kind is BRSNIS:
        return br_snis_rule(estimator.iterations, estimator.burn_in)
    return None


def _output(of_rule: Sums, estimator: Estimator) -> Sums:
    """Select the output of the rule that belongs to the estimator."""
    k = 1 if isinstance(estimator, ABC) else 2 if isinstance(estimator, ABC2) else 0
    first, second = of_rule
    return first[:, k], second[:, k]


def _fingerprint(task: _Task, x: Tensor) -> str:
    """Hash everything that the sums depend on; the kernel enters through its values at the first query."""
    estimators = [(type(each).__qualname__, repr(each)) for each in task.estimators]
    settings = (task.tau, task.n, task.trials, estimators, task.replacement, task.seed)
    return fingerprint(settings, x, task.pool, task.at(x[0], 0).log_w)


def check(
    x: Tensor,
    pool: Tensor,
    tau: float,
    n: tuple[int, ...],
    trials: int,
    estimators: Sequence[Estimator],
    replacement: bool,
    seed: int,
) -> None:
    """Validate the arguments of `monte_carlo`."""
    require_temperature(tau)
    require_matrices(x=x, pool=pool)
    require_finite(x=x, pool=pool)
    if not n or not all(isinstance(size, int) and size >= 1 for size in n):
        raise UserError(f"is {n!r}", "must be one or more integers ≥ 1", "pass for example (4, 8, 16)", field="n")
    if not isinstance(trials, int) or trials < 2:
        raise UserError(f"is {trials!r}", "must be an integer ≥ 2", "the paper uses 200000", field="trials")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise UserError(f"is {seed!r}", "must be an integer from 0 to 2⁶³ − 1", "pass for example 0", field="seed")
    if not estimators or len({each.name for each in estimators}) < len(estimators):
        names = ", ".join(each.name for each in estimators) or "empty"
        raise UserError(f"are {names}", "must be one or more different names", "pass each once", field="estimators")
    most = max(each.budget(size) for each in estimators for size in n)
    if not replacement and most > len(pool):
        raise UserError(
            f"{most} references cannot be drawn without replacement from a pool of {len(pool)}",
            f"must be at most {len(pool)}",
            "draw with replacement, or fewer references",
        )
    if len(pool) >= 1 << 32:
        raise UserError(f"has {len(pool)} points", f"must have fewer than {1 << 32}", "pass a part of it", field="pool")
