"""Σ_t e_t and Σ_t e_t e_tᵀ over trials, e = T − T*, for the centroids that are functions of power sums.

    S_k = Σ w^k,  P_k = Σ w^k (y − T*),  p_k = S_k/S_1^k,  D_k = P_k/S_1^k − p_k T:
    T,   T + D_2,   T + (1 − 3p_2) D_2 + 2 D_3

(`eq:centroid`, `eq:abc`, ABC-2) from one pass over a minibatch. Weights are looked up, one row of (w, y − T*) for each
point of the pool, and random access to that table is what takes the time. It is therefore kept in float32, half as
large; T* has to be that of the rounded table, and sums are float64.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from truedrift.bias.draws import draw_one

FUSED = ("standard", "abc", "abc2")
LARGEST_RANGE = 200.0
"""Of log w over the pool: e^{−3·200} is still a number."""
TRIALS_A_BLOCK = 2048
DRAWS_TOGETHER = 512
"""Minibatches are looked up together up to this many draws, so that many accesses to memory are under way at once."""

Array = NDArray[np.float64]
Table = NDArray[np.float32]


def tally(table: Table, key: np.uint64, n: int, trials: int, replacement: bool) -> tuple[Array, Array]:
    """(Σ e [3, D], Σ e eᵀ [3, D, D]) in the order of FUSED; table [N, 1 + D] holds w > 0 and y − T*."""
    blocks = -(-trials // TRIALS_A_BLOCK)
    D = table.shape[1] - 1
    first, second = np.zeros((blocks, 3, D)), np.zeros((blocks, 3, D, D))
    _tally(table, key, n, trials, replacement, first, second)
    return first.sum(0), second.sum(0)


@numba.njit(parallel=True, fastmath=True, cache=True)  # type: ignore[misc]
def _tally(table: Table, key: np.uint64, n: int, trials: int, replacement: bool, first: Array, second: Array) -> None:
    N, D = table.shape[0], table.shape[1] - 1
    together = max(1, DRAWS_TOGETHER // n)
    for block in numba.prange(len(first)):
        seen = np.full(1 if replacement else N, -1, np.int64)
        drawn = np.empty(together * n, np.uint32)
        w, y, e = np.empty(together * n), np.empty((D, together * n)), np.empty((3, D))
        end = min(trials, (block + 1) * TRIALS_A_BLOCK)
        for trial in range(block * TRIALS_A_BLOCK, end, together):
            some = min(together, end - trial)
            for t in range(some):
                draw_one(key, trial + t, N, replacement, seen, drawn[t * n : (t + 1) * n])
            for i in range(some * n):
                w[i] = table[drawn[i], 0]
                for d in range(D):
                    y[d, i] = table[drawn[i], 1 + d]
            for t in range(some):
                _centroids(w, y, t * n, (t + 1) * n, e)
                for k in range(3):
                    for d in range(D):
                        first[block, k, d] += e[k, d]
                        for f in range(D):
                            second[block, k, d, f] += e[k, d] * e[k, f]


@numba.njit(inline="always", fastmath=True, cache=True)  # type: ignore[misc]
def _centroids(w: Array, y: Array, begin: int, end: int, e: Array) -> None:
    """e [3, D] of the minibatch from `begin` to `end`."""
    S_1 = S_2 = S_3 = 0.0
    for i in range(begin, end):
        S_1 += w[i]
        S_2 += w[i] * w[i]
        S_3 += w[i] * w[i] * w[i]
    p_2, p_3 = S_2 / S_1**2, S_3 / S_1**3
    for d in range(len(y)):
        P_1 = P_2 = P_3 = 0.0
        for i in range(begin, end):
            wy = w[i] * y[d, i]
            P_1 += wy
            P_2 += w[i] * wy
            P_3 += w[i] * w[i] * wy
        T = P_1 / S_1
        D_2, D_3 = P_2 / S_1**2 - p_2 * T, P_3 / S_1**3 - p_3 * T
        e[0, d] = T
        e[1, d] = T + D_2
        e[2, d] = T + (1 - 3 * p_2) * D_2 + 2 * D_3
