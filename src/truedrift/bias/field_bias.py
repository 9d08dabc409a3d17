"""The bias of the field that is trained: V(x) = T⁺(x) − T⁻(x) with the normalization and self-mask of the batch.

The theorems are about a row of weights k(x, y_j). In training, x is one of n generated samples, the other n − 1 are its
negatives, and with bidirectional normalization a reference weighs k(x, y_j)/√c_j with c_j = Σ_i k(x_i, y_j) from the
same batch. The weights of the population are

    ρ(y) = k(x, y) c(y)^{−s},   c(y) = E_q[k(x′, y)],   s = 0 (row) or ½,     T* = E[ρ y]/E[ρ].

There is no exact method for this, but most of the noise can be removed: the linear part of T,

    (1/m) Σ_j ψ(y_j) + (1/n) Σ_i h(x_i),   ψ = ρ (y − T*)/E[ρ],   h(x′) = −s E_y[k(x′, y)/c(y) ψ(y)],

has mean zero exactly, over draws with replacement from the pools, and is subtracted from every trial. The rest falls as
1/n and not as 1/√n, so that at n = 64 one such trial replaces dozens of plain trials.

The compiled loop computes the weights of row 0 under every normalization at once. With k_ij between the n generated
samples (row 0 is x) and the columns [generated | positives], without the entries of a sample with itself, and
c_j = Σ_i k_ij, a column weighs k_0j (row), k_0j/√c_j (bidirectional) or k_0j/√(c_j − k_0j) (bidirectional-loo).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from truedrift.axes import Float, Tensor
from truedrift.bias.checks import read_sizes, require_points
from truedrift.bias.monte_carlo import Sums, TrialCache, TrialMoments, cache_path, trial_moments
from truedrift.bias.trials import add_error, block_count, draw_one, power_sums, stream_key
from truedrift.errors import UserError, require_choice, require_integer
from truedrift.field.spec import JOINT_NORMALIZATIONS, Normalization
from truedrift.kernels.kernel import log_kernel
from truedrift.progress import Progress, no_progress

Array = NDArray[np.float64]


class Influences(NamedTuple):
    """T* [2, Q, D], ψ [2, Q, N, D] and h [2, Q, M, D] of one side, for s = 0 and ½; arrays without Q at one query."""

    T_star: Any
    psi: Any
    h: Any

    def at(self, query: int) -> Influences:
        """Return the arrays of one query."""
        return Influences(*(each[:, query].contiguous().numpy() for each in self))


@numba.njit(parallel=True, fastmath=True, cache=True)  # type: ignore[misc]
def accumulate_field(
    x: Array,
    positives: Array,
    generated: Array,
    pos: Influences,
    neg: Influences,
    gaussian: bool,
    tau: float,
    n: int,
    trials: int,
    keys: tuple[np.uint64, np.uint64],
    blocks: int,
) -> tuple[Array, Array]:
    """Return Σ e and Σ e eᵀ [blocks, 3, 3, 3, D (, D)] of blocks of trials, without the linear parts.

    Axes are normalization × (T⁺, T⁻, V) × (standard, ABC, ABC-2). The keys are those of negatives and positives.
    """
    D, trials_per_block = len(x), -(-trials // blocks)
    key_neg, key_pos = keys
    first, second = np.zeros((blocks, 3, 3, 3, D)), np.zeros((blocks, 3, 3, 3, D, D))
    for block in numba.prange(blocks):
        unused = np.empty(1, np.int64)
        drawn_neg, drawn_pos = np.empty(n - 1, np.uint32), np.empty(n, np.uint32)
        y = np.empty((D, 2 * n))  # columns: x, the other generated ones, positives
        of_x, others, w = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
        e, linear = np.empty((3, 3, D)), np.empty((2, D))
        for trial in range(block * trials_per_block, min(trials, (block + 1) * trials_per_block)):
            # Draw a batch
            draw_one(key_neg, trial, len(generated), True, unused, drawn_neg)
            draw_one(key_pos, trial, len(positives), True, unused, drawn_pos)
            for d in range(D):
                y[d, 0] = x[d]
                for j in range(n - 1):
                    y[d, 1 + j] = generated[drawn_neg[j], d]
                for j in range(n):
                    y[d, n + j] = positives[drawn_pos[j], d]
            # Compute the weights of row 0 under every normalization, and the errors of the centroids
            _columns(y, n, gaussian, tau, of_x, others)
            for normalization in range(3):
                for j in range(1, 2 * n):
                    among = others[j] + of_x[j] if normalization == 1 else others[j]
                    w[j] = of_x[j] if normalization == 0 else of_x[j] / math.sqrt(among)
                s = min(normalization, 1)
                power_sums(w[n:], y[:, n:], e[0])
                power_sums(w[1:n], y[:, 1:n], e[1])
                _linear(pos, s, drawn_pos, drawn_neg, linear[0])
                _linear(neg, s, drawn_neg, drawn_neg, linear[1])
                for k in range(3):
                    for d in range(D):
                        e[0, k, d] -= pos.T_star[s, d] + linear[0, d]
                        e[1, k, d] -= neg.T_star[s, d] + linear[1, d]
                        e[2, k, d] = e[0, k, d] - e[1, k, d]
                for side in range(3):
                    add_error(e[side], first[block, normalization, side], second[block, normalization, side])
    return first, second


@numba.njit(inline="always", fastmath=True, cache=True)  # type: ignore[misc]
def _columns(y: Array, n: int, gaussian: bool, tau: float, of_x: Array, others: Array) -> None:
    """Compute k_0j and c_j − k_0j = Σ_{i≠0} k_ij of every column except that of x."""
    for j in range(1, 2 * n):
        others[j] = 0.0
        for i in range(n):
            square = 0.0
            for d in range(len(y)):
                square += (y[d, i] - y[d, j]) ** 2
            k = math.exp(-square / (2 * tau * tau)) if gaussian else math.exp(-math.sqrt(square) / tau)
            if i == 0:
                of_x[j] = k
            elif i != j:
                others[j] += k


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def _linear(
    side: Influences, s: int, references: NDArray[np.uint32], queries: NDArray[np.uint32], linear: Array
) -> None:
    """Compute (1/m) Σ_j ψ(y_j) + (1/n) Σ_i h(x_i)."""
    for d in range(len(linear)):
        psi = h = 0.0
        for j in references:
            psi += side.psi[s, j, d]
        for i in queries:
            h += side.h[s, i, d]
        linear[d] = psi / len(references) + h / (len(queries) + 1)


ESTIMATORS = ("standard", "abc", "abc2")
_ELEMENTS = 1 << 22
_LARGEST_RANGE = 200.0


@dataclass(frozen=True)
class FieldMoments:
    """Bias of both centroids and of the field at every query and n; covariances are those of the remaining noise."""

    T_pos: TrialMoments
    T_neg: TrialMoments
    V: TrialMoments


def field_bias_trials(
    x: Float[Tensor, "Q D"],
    positives: Float[Tensor, "N D"],
    generated: Float[Tensor, "M D"],
    *,
    tau: float,
    n: Sequence[int],
    trials: int,
    kernel: Literal["laplace", "gaussian"] = "laplace",
    seed: int = 0,
    progress: Progress = no_progress,
    keep: Path | None = None,
) -> dict[tuple[Normalization, str], FieldMoments]:
    """Measure the bias of the field over batches of x with n − 1 other generated samples, and n positives.

    Args:
        x: Queries, each the first generated sample of its batches.
        positives: The pool of positives.
        generated: The pool of generated samples.
        tau: The temperature of the kernel.
        n: Batch sizes, each at least 3.
        trials: The number of batches per query and n.
        kernel: The name of the kernel.
        seed: The seed of the draws.
        progress: Called with the work that is done.
        keep: A directory that caches finished queries.

    Returns:
        The moments by normalization and estimator.
    """
    # Check the arguments
    sizes = read_sizes(n, 3)  # the query and two others
    require_points(tau, x=x, positives=positives, generated=generated)
    require_choice("kernel", kernel, ("laplace", "gaussian"))
    trials = require_integer("trials", trials, 2, 2000)
    _require_range(torch.cat((x, positives, generated)), tau, kernel)
    # Compute the targets and the linear parts
    x, positives, generated = (each.detach().to("cpu", torch.float64) for each in (x, positives, generated))
    pos, neg = (influences(x, pool, generated, tau, kernel) for pool in (positives, generated))
    work_per_query = sum(size**2 for size in sizes)
    blocks = block_count(trials, 27 * x.shape[1] ** 2)

    def query_sums(q: int) -> dict[str, Sums]:
        sums, done = [], q * work_per_query
        arrays = (x[q].numpy(), positives.numpy(), generated.numpy(), pos.at(q), neg.at(q))
        for size in sizes:
            progress("Monte Carlo of the field", done, len(x) * work_per_query)
            keys = stream_key(seed, q, size, 0), stream_key(seed, q, size, 1)
            by_block = accumulate_field(*arrays, kernel == "gaussian", tau, size, trials, keys, blocks)
            sums.append([each.sum(0) for each in by_block])
            done += size**2
        first, second = (torch.from_numpy(np.stack(each, 3)) for each in zip(*sums, strict=True))
        return {"field": (first, second)}

    # Sum over the trials of each query
    settings = (tau, sizes, trials, kernel, seed)
    cache = TrialCache(None if keep is None else cache_path(keep, settings, x, positives, generated))
    sums = [cache.read_or_compute(q, partial(query_sums, q))["field"] for q in range(len(x))]
    progress("Monte Carlo of the field", len(x) * work_per_query, len(x) * work_per_query)
    # Compute the moments, with axes normalization × side × estimator × query × n
    first, second = (torch.stack(each, 3) for each in zip(*sums, strict=True))
    targets = [torch.stack((pos.T_star, neg.T_star, pos.T_star - neg.T_star))[:, s] for s in (0, 1, 1)]
    return {
        (normalization, estimator): FieldMoments(
            *(trial_moments(sizes, trials, targets[a][k], first[a, k, b], second[a, k, b]) for k in range(3))
        )
        for a, normalization in enumerate(JOINT_NORMALIZATIONS)
        for b, estimator in enumerate(ESTIMATORS)
    }


def influences(x: Tensor, pool: Tensor, generated: Tensor, tau: float, kernel: str) -> Influences:
    """Compute T*, ψ and h of the side whose references come from this pool."""
    log_k = log_kernel(kernel)
    # log c(y)
    some = pool.split(max(1, _ELEMENTS // len(generated)))
    log_c = torch.cat([log_k(generated, each, tau).logsumexp(0) for each in some]) - math.log(len(generated))
    # T* and ψ
    log_rho = torch.stack([log_k(x, pool, tau) - s * log_c for s in (0, 0.5)])  # [2, Q, N]
    rho = log_rho.softmax(-1)
    T_star = rho @ pool
    psi = len(pool) * rho.unsqueeze(-1) * (pool - T_star.unsqueeze(-2))  # [2, Q, N, D]
    # h, which is 0 for s = 0
    flat = psi[1].transpose(0, 1).flatten(1)
    some = generated.split(max(1, _ELEMENTS // len(pool)))
    moved = torch.cat([(log_k(each, pool, tau) - log_c).exp() @ flat for each in some]) / len(pool)
    h = -0.5 * moved.view(len(generated), len(x), -1).transpose(0, 1)
    return Influences(T_star, psi, torch.stack((torch.zeros_like(h), h)))


def _require_range(points: Tensor, tau: float, kernel: str) -> None:
    widest = float(torch.linalg.vector_norm(points.amax(0) - points.amin(0)))
    log_range = widest / tau if kernel == "laplace" else (widest / tau) ** 2 / 2
    if log_range > _LARGEST_RANGE:
        allowed = f"must be at most {_LARGEST_RANGE:.0f}"
        raise UserError(f"log k ranges over {log_range:.0f}", allowed, "use a larger tau or closer points")
