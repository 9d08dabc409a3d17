"""The loop over batches of `trained_field`, compiled: the weights of row 0 under every normalization at once.

With k_ij between the n generated samples (row 0 is x) and the columns [generated | positives], own entries left out,
and c_j = Σ_i k_ij, a column weighs k_0j (row), k_0j/√c_j (bidirectional) or k_0j/√(c_j − k_0j) (bidirectional-loo).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from truedrift.bias.sampling.draws import draw_one
from truedrift.bias.sampling.minibatch import power_sums
from truedrift.bias.sampling.trials import blocks_of

Array = NDArray[np.float64]


class Influence(NamedTuple):
    """For s = 0 and ½, on one side: T* [2, D], ψ [2, N, D] of its points, h [2, M, D] of the generated samples."""

    T_star: Array
    psi: Array
    h: Array


def tally_field(
    x: Array,
    positives: Array,
    generated: Array,
    pos: Influence,
    neg: Influence,
    *,
    gaussian: bool,
    tau: float,
    n: int,
    trials: int,
    keys: tuple[np.uint64, np.uint64],
) -> tuple[Array, Array]:
    """(Σ e, Σ e eᵀ) [3, 3, 3, D (, D)], normalization × (T⁺, T⁻, V) × (standard, ABC, ABC-2), less the linear parts."""
    D = len(x)
    blocks = blocks_of(trials, 27 * D * D)
    first, second = np.zeros((blocks, 3, 3, 3, D)), np.zeros((blocks, 3, 3, 3, D, D))
    _tally(x, positives, generated, pos, neg, gaussian, tau, n, trials, *keys, first, second)
    return first.sum(0), second.sum(0)


@numba.njit(parallel=True, fastmath=True, cache=True)  # type: ignore[misc]
def _tally(
    x: Array,
    positives: Array,
    generated: Array,
    pos: Influence,
    neg: Influence,
    gaussian: bool,
    tau: float,
    n: int,
    trials: int,
    key_neg: np.uint64,
    key_pos: np.uint64,
    first: Array,
    second: Array,
) -> None:
    D, a_block = len(x), -(-trials // len(first))
    for block in numba.prange(len(first)):
        unused = np.empty(1, np.int64)
        drawn_neg, drawn_pos = np.empty(n - 1, np.uint32), np.empty(n, np.uint32)
        y = np.empty((D, 2 * n))  # columns: x, the other generated ones, positives
        own, others, w = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
        e, linear = np.empty((3, 3, D)), np.empty((2, D))
        for trial in range(block * a_block, min(trials, (block + 1) * a_block)):
            draw_one(key_neg, trial, len(generated), True, unused, drawn_neg)
            draw_one(key_pos, trial, len(positives), True, unused, drawn_pos)
            for d in range(D):
                y[d, 0] = x[d]
                for j in range(n - 1):
                    y[d, 1 + j] = generated[drawn_neg[j], d]
                for j in range(n):
                    y[d, n + j] = positives[drawn_pos[j], d]
            _columns(y, n, gaussian, tau, own, others)
            for normalization in range(3):
                for j in range(1, 2 * n):
                    among = others[j] + own[j] if normalization == 1 else others[j]
                    w[j] = own[j] if normalization == 0 else own[j] / math.sqrt(among)
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
                _add(e, first[block, normalization], second[block, normalization])


@numba.njit(inline="always", fastmath=True, cache=True)  # type: ignore[misc]
def _columns(y: Array, n: int, gaussian: bool, tau: float, own: Array, others: Array) -> None:
    """k_0j and c_j − k_0j = Σ_{i≠0} k_ij of every column but x's own."""
    for j in range(1, 2 * n):
        others[j] = 0.0
        for i in range(n):
            square = 0.0
            for d in range(len(y)):
                square += (y[d, i] - y[d, j]) ** 2
            k = math.exp(-square / (2 * tau * tau)) if gaussian else math.exp(-math.sqrt(square) / tau)
            if i == 0:
                own[j] = k
            elif i != j:
                others[j] += k


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def _linear(
    side: Influence, s: int, references: NDArray[np.uint32], queries: NDArray[np.uint32], linear: Array
) -> None:
    """(1/m) Σ_j ψ(y_j) + (1/n) Σ_i h(x_i)."""
    for d in range(len(linear)):
        psi = h = 0.0
        for j in references:
            psi += side.psi[s, j, d]
        for i in queries:
            h += side.h[s, i, d]
        linear[d] = psi / len(references) + h / (len(queries) + 1)


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def _add(e: Array, first: Array, second: Array) -> None:
    for side in range(3):
        for k in range(3):
            for d in range(e.shape[2]):
                first[side, k, d] += e[side, k, d]
                for f in range(e.shape[2]):
                    second[side, k, d, f] += e[side, k, d] * e[side, k, f]
