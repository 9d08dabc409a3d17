"""Compiled trials: draw minibatches, compute their centroids, and sum e = T − T* and e eᵀ over trials.

**Draws.** Minibatches are a pure function of (seed, stream, trial): there is no state, and any part of them can be
drawn again. The i-th number of a trial is mix(key + i·γ), the generator SplitMix64 with an explicit counter; its upper
53 bits choose a point of the pool. Without replacement, a point that the trial already has is drawn again.

**Centroids** of one minibatch, from weights w [m] and y − T* [D, m]:

    power sums  S_k = Σ w^k, P_k = Σ w^k y, p_k = S_k/S_1^k, D_k = P_k/S_1^k − p_k T:
                T,  T + D_2 (`eq:abc`),  T + (1 − 3p_2) D_2 + 2 D_3 (ABC-2)
    jackknife   n T − (n − 1) mean_i T_{−i},  T_{−i} = (P_1 − w_i y_i)/(S_1 − w_i)
    bootstrap   2 T − mean_b T_b over resamples
    BR-SNIS     mean over k ≥ burn_in of the centroid of the state and block k

These loops compute the same as the tensor code of `centroids` (`app:baselines`), and are tested against it.

**Sums.** Weights are looked up in a table with one row (w, y − T*) per pool point, and random access to it takes most
of the time. The table is therefore float32, half as large. T* must be that of the rounded table, and sums are float64.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


def stream_key(seed: int, *path: int) -> np.uint64:
    """Return the key of a stream, from a seed and the numbers that identify the stream."""
    with np.errstate(over="ignore"):
        key = _mix.py_func(np.uint64(seed) + _GOLDEN)
        for step in path:
            key = _mix.py_func(key + np.uint64(step + 1) * _GOLDEN)
    return key


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def stream(key: np.uint64, trial: int) -> np.uint64:
    """Return the key of one trial."""
    return _mix(key + np.uint64(trial) * _GOLDEN)


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def uniform(of_trial: np.uint64, counter: int) -> float:
    """Return number `counter` (from 1) of a trial, in [0, 1)."""
    return np.int64(_mix(of_trial + np.uint64(counter) * _GOLDEN) >> _11) * 2.0**-53  # signed: one instruction


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def draw_one(
    key: np.uint64, trial: int, N: int, replacement: bool, last_trial: NDArray[np.int64], drawn: NDArray[np.uint32]
) -> None:
    """Fill `drawn` with the points of a trial. `last_trial` [N] holds the last trial that drew each point, or −1."""
    of_trial = stream(key, trial)
    if replacement:
        for i in range(len(drawn)):
            drawn[i] = np.uint32(uniform(of_trial, i + 1) * N)
        return
    counter = 0
    for i in range(len(drawn)):
        while True:
            counter += 1
            point = np.uint32(uniform(of_trial, counter) * N)
            if last_trial[point] != trial:
                break
        last_trial[point] = trial
        drawn[i] = point


@numba.njit(cache=True)  # type: ignore[misc]
def draw(key: np.uint64, first: int, trials: int, m: int, N: int, replacement: bool) -> NDArray[np.uint32]:
    """Draw points [trials, m] from a pool of N, for trials `first`, `first` + 1, …"""
    points = np.empty((trials, m), np.uint32)
    last_trial = np.full(1 if replacement else N, -1, np.int64)
    for t in range(trials):
        draw_one(key, first + t, N, replacement, last_trial, points[t])
    return points


Array = NDArray[np.float64]


@numba.njit(inline="always", fastmath=True, cache=True)  # type: ignore[misc]
def power_sums(w: Array, y: Array, e: Array) -> None:
    """Compute e [3, D] of standard, ABC and ABC-2."""
    # Sums of the weights
    S_1 = S_2 = S_3 = 0.0
    for i in range(len(w)):
        S_1 += w[i]
        S_2 += w[i] * w[i]
        S_3 += w[i] * w[i] * w[i]
    p_2, p_3 = S_2 / S_1**2, S_3 / S_1**3
    # Centroids
    for d in range(len(y)):
        P_1 = P_2 = P_3 = 0.0
        for i in range(len(w)):
            wy = w[i] * y[d, i]
            P_1 += wy
            P_2 += w[i] * wy
            P_3 += w[i] * w[i] * wy
        T = P_1 / S_1
        D_2, D_3 = P_2 / S_1**2 - p_2 * T, P_3 / S_1**3 - p_3 * T
        e[0, d] = T
        e[1, d] = T + D_2
        e[2, d] = T + (1 - 3 * p_2) * D_2 + 2 * D_3


@numba.njit(fastmath=True, cache=True)  # type: ignore[misc]
def jackknife(w: Array, y: Array, e: Array) -> None:
    """Compute e [1, D]. Only S_1 − w of the largest weight can cancel, so the sums without it are separate."""
    # The largest weight, and the sum of the others
    n, top = len(w), 0
    for i in range(len(w)):
        if w[i] > w[top]:
            top = i
    below = 0.0
    for i in range(len(w)):
        if i != top:
            below += w[i]
    # The centroid, and those without one reference
    for d in range(len(y)):
        rest = 0.0
        for i in range(len(w)):
            if i != top:
                rest += w[i] * y[d, i]
        P, S = rest + w[top] * y[d, top], below + w[top]
        if n == 1:
            e[0, d] = P / S
            continue
        without = rest / below
        for i in range(len(w)):
            if i != top:
                without += (P - w[i] * y[d, i]) / (S - w[i])
        e[0, d] = n * P / S - (n - 1) * without / n


@numba.njit(fastmath=True, cache=True)  # type: ignore[misc]
def bootstrap(w: Array, y: Array, e: Array, resamples: int, key: np.uint64) -> None:
    """Compute e [1, D]."""
    # Sum the centroids of the resamples
    n, D = len(w), len(y)
    total, counter = np.zeros(D), 0
    P = np.empty(D)
    for _ in range(resamples):
        S = 0.0
        P[:] = 0.0
        for _ in range(n):
            counter += 1
            j = np.uint32(uniform(key, counter) * n)
            S += w[j]
            for d in range(D):
                P[d] += w[j] * y[d, j]
        for d in range(D):
            total[d] += P[d] / S
    # Twice the centroid, less their mean
    for d in range(D):
        S = P_d = 0.0
        for i in range(len(w)):
            S += w[i]
            P_d += w[i] * y[d, i]
        e[0, d] = 2 * P_d / S - total[d] / resamples


@numba.njit(fastmath=True, cache=True)  # type: ignore[misc]
def br_snis(w: Array, y: Array, e: Array, iterations: int, burn_in: int, key: np.uint64) -> None:
    """Compute e [1, D] of m = K(n − 1) + 1 references, the first of which is the first state."""
    D, fresh = len(y), (len(w) - 1) // iterations
    state = 0
    e[0] = 0.0
    for k in range(iterations):
        # The centroid of the state and block k
        first = 1 + k * fresh
        S = w[state]
        for i in range(first, first + fresh):
            S += w[i]
        if k >= burn_in:
            for d in range(D):
                P = w[state] * y[d, state]
                for i in range(first, first + fresh):
                    P += w[i] * y[d, i]
                e[0, d] += P / S / (iterations - burn_in)
        # The next state
        left = uniform(key, k + 1) * S - w[state]
        i = first
        while left >= 0 and i < first + fresh:
            left -= w[i]
            state = i
            i += 1


LARGEST_RANGE = 80.0
"""The largest range of log w over the pool: e^{−80} still has all its digits in float32."""
SUMS = 1 << 21
"""The largest size of the sums of all blocks, for any number of trials."""
DRAWS_TOGETHER = 512
"""Minibatches are looked up together up to this many draws, so that memory accesses overlap."""

Table = NDArray[np.float32]


class Rule(NamedTuple):
    """The centroids to compute per minibatch: the three of power sums, or one of the others with its settings."""

    kind: int
    outputs: int
    settings: tuple[int, int] = (0, 0)


POWER_SUMS = Rule(0, 3)
JACKKNIFE = Rule(1, 1)
BOOTSTRAP, BR_SNIS = 2, 3


def block_count(trials: int, numbers: int) -> int:
    """Return the number of blocks of trials, for sums of `numbers` numbers per block.

    It does not depend on the number of threads, so the digits of the sums do not either.
    """
    return max(4, min(64, SUMS // numbers, trials))


@numba.njit(parallel=True, fastmath=True, cache=True)  # type: ignore[misc]
def accumulate(
    table: Table,
    rule: Rule,
    m: int,
    trials: int,
    key: np.uint64,
    estimator_key: np.uint64,
    replacement: bool,
    blocks: int,
) -> tuple[Array, Array]:
    """Return Σ e [blocks, outputs, D] and Σ e eᵀ [blocks, outputs, D, D] of blocks of minibatches of m.

    The table [N, 1 + D] holds w > 0 and y − T*. `key` is that of the minibatches, and `estimator_key` that of the draws
    of the estimator itself.
    """
    N, D = table.shape[0], table.shape[1] - 1
    kind, outputs, (setting, other) = rule
    first, second = np.zeros((blocks, outputs, D)), np.zeros((blocks, outputs, D, D))
    together, trials_per_block = max(1, DRAWS_TOGETHER // m), -(-trials // blocks)
    for block in numba.prange(blocks):
        last_trial = np.full(1 if replacement else N, -1, np.int64)
        drawn, w, y = np.empty((together, m), np.uint32), np.empty((together, m)), np.empty((together, D, m))
        e = np.empty((outputs, D))
        end = min(trials, (block + 1) * trials_per_block)
        for trial in range(block * trials_per_block, end, together):
            # Draw and look up some minibatches, then compute their errors
            some = min(together, end - trial)
            for t in range(some):
                draw_one(key, trial + t, N, replacement, last_trial, drawn[t])
            for t in range(some):
                _look_up(table, drawn[t], w[t], y[t])
            for t in range(some):
                if kind == 0:
                    power_sums(w[t], y[t], e)
                elif kind == 1:
                    jackknife(w[t], y[t], e)
                elif kind == BOOTSTRAP:
                    bootstrap(w[t], y[t], e, setting, stream(estimator_key, trial + t))
                else:
                    br_snis(w[t], y[t], e, setting, other, stream(estimator_key, trial + t))
                add_error(e, first[block], second[block])
    return first, second


@numba.njit(fastmath=True, cache=True)  # type: ignore[misc]
def _look_up(table: Table, drawn: NDArray[np.uint32], w: Array, y: Array) -> None:
    """Look up column by column: loops without inner loops let memory accesses overlap."""
    for i in range(len(drawn)):
        w[i] = table[drawn[i], 0]
    for d in range(len(y)):
        for i in range(len(drawn)):
            y[d, i] = table[drawn[i], 1 + d]


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def add_error(e: Array, first: Array, second: Array) -> None:
    """Add e [outputs, D] and e eᵀ to the sums."""
    for k in range(e.shape[0]):
        for d in range(e.shape[1]):
            first[k, d] += e[k, d]
            for f in range(e.shape[1]):
                second[k, d, f] += e[k, d] * e[k, f]
