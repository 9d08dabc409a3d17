"""The centroids of one minibatch, compiled: e = T − T* from weights w [m] and y − T* [D, m].

    power sums  S_k = Σ w^k, P_k = Σ w^k y, p_k = S_k/S_1^k, D_k = P_k/S_1^k − p_k T:
                T,  T + D_2 (`eq:abc`),  T + (1 − 3p_2) D_2 + 2 D_3 (ABC-2)
    jackknife   n T − (n − 1) mean_i T_{−i},  T_{−i} = (P_1 − w_i y_i)/(S_1 − w_i)
    bootstrap   2 T − mean_b T_b over resamples
    BR-SNIS     mean over k ≥ burn_in of the centroid of the state and block k

They do in loops what the estimators of `centroids` do in tensors (`app:baselines`), and are tested against them.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from truedrift.bias.sampling.draws import uniform

Array = NDArray[np.float64]


@numba.njit(inline="always", fastmath=True, cache=True)  # type: ignore[misc]
def power_sums(w: Array, y: Array, e: Array) -> None:
    """e [3, D] of standard, ABC and ABC-2."""
    S_1 = S_2 = S_3 = 0.0
    for i in range(len(w)):
        S_1 += w[i]
        S_2 += w[i] * w[i]
        S_3 += w[i] * w[i] * w[i]
    p_2, p_3 = S_2 / S_1**2, S_3 / S_1**3
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
    """e [1, D]. Only S_1 − w of the largest weight can cancel: the sums without it are taken apart."""
    n, top = len(w), 0
    for i in range(len(w)):
        if w[i] > w[top]:
            top = i
    below = 0.0
    for i in range(len(w)):
        if i != top:
            below += w[i]
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
    """e [1, D]."""
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
    for d in range(D):
        S = P_d = 0.0
        for i in range(len(w)):
            S += w[i]
            P_d += w[i] * y[d, i]
        e[0, d] = 2 * P_d / S - total[d] / resamples


@numba.njit(fastmath=True, cache=True)  # type: ignore[misc]
def br_snis(w: Array, y: Array, e: Array, iterations: int, burn_in: int, key: np.uint64) -> None:
    """e [1, D] of m = K(n − 1) + 1 references, the first of which is the first state."""
    D, fresh = len(y), (len(w) - 1) // iterations
    state = 0
    e[0] = 0.0
    for k in range(iterations):
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
        left = uniform(key, k + 1) * S - w[state]
        i = first
        while left >= 0 and i < first + fresh:
            left -= w[i]
            state = i
            i += 1
