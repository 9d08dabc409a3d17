"""Every centroid estimator from its definition: loops over references, in float64, without code of the package.

A minibatch is a list of log-weights `log_w` and a tensor y [n, D] of the references that are *not* masked. Each
function returns the centroid T [D] and not weights, so that γ is checked by the centroid that it gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Weights = Sequence[float]


def alphas(log_w: Weights) -> list[float]:
    """α_i = w_i / Σ w_j, relative to the largest."""
    top = max(log_w, default=0)
    w = [math.exp(value - top) for value in log_w]
    total = math.fsum(w)
    return [value / total for value in w]


def mean_of(weights: Weights, y: Tensor) -> Tensor:
    """Σ_i weight_i y_i, one reference after the other."""
    T = torch.zeros(y.shape[-1], dtype=torch.float64)
    for weight, point in zip(weights, y.double(), strict=True):
        T += weight * point
    return T


def standard(log_w: Weights, y: Tensor) -> Tensor:
    """T_n = Σ α_i y_i."""
    return mean_of(alphas(log_w), y)


def abc(log_w: Weights, Y: Tensor) -> Tensor:
    """The listing of the paper, its two lines as printed."""
    alpha, Y = torch.tensor([alphas(log_w)], dtype=torch.float64), Y.double()
    a2 = alpha**2
    T_abc = (1 - a2.sum(-1, keepdim=True)) * (alpha @ Y) + a2 @ Y
    return T_abc[0]


def abc2(log_w: Weights, y: Tensor) -> Tensor:
    """T + (1 − 3p_2) D_2 + 2 D_3 with D_k = Σ α_i^k y_i − p_k T."""
    alpha = alphas(log_w)
    T = mean_of(alpha, y)
    p = {k: math.fsum(a**k for a in alpha) for k in (2, 3)}
    D = {k: mean_of([a**k for a in alpha], y) - p[k] * T for k in (2, 3)}
    return T + (1 - 3 * p[2]) * D[2] + 2 * D[3]


def stratified(log_w: Weights, y: Tensor, strata: Sequence[int]) -> Tensor:
    """T + Σ α_i² (y_i − T) − Σ_s (1/n_s)(Σ_s α)(Σ_s α_i (y_i − T))."""
    alpha = alphas(log_w)
    T = mean_of(alpha, y)
    result = T + mean_of([a**2 for a in alpha], y - T)
    for s in set(strata):
        members = [i for i, stratum in enumerate(strata) if stratum == s]
        A = math.fsum(alpha[i] for i in members)
        result -= A / len(members) * mean_of([alpha[i] for i in members], (y - T)[members])
    return result


def jackknife(log_w: Weights, y: Tensor) -> Tensor:
    """n T_n − (n − 1) mean_i T_{n,−i}, with every leave-one-out centroid computed separately."""
    n = len(log_w)
    if n == 1:
        return y[0].double()
    left_out = torch.zeros(y.shape[-1], dtype=torch.float64)
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        left_out += standard([log_w[j] for j in rest], y[rest]) / n
    return n * standard(log_w, y) - (n - 1) * left_out


def bootstrap(log_w: Weights, y: Tensor, resamples: Sequence[Sequence[int]]) -> Tensor:
    """2 T_n − mean_b T*_b, where resample b is the list of the references that it drew."""
    mean = torch.zeros(y.shape[-1], dtype=torch.float64)
    for drawn in resamples:
        mean += standard([log_w[i] for i in drawn], y[list(drawn)]) / len(resamples)
    return 2 * standard(log_w, y) - mean


def br_snis(log_w: Weights, y: Tensor, clocks: Tensor, burn_in: int) -> Tensor:
    """The i-SIR chain: pool the state with n − 1 fresh references, average the pools' centroids, draw the next state.

    `clocks` [iterations, n] are the exponential waiting times of each pool: the next state is the first to arrive when
    reference i runs at rate α_i. A masked reference, log w = −∞, is in no pool; an empty pool has no centroid.
    """
    fresh = (len(log_w) - 1) // len(clocks)
    state, T = 0, []
    for k, clock in enumerate(clocks.tolist()):
        pool = [state, *range(1 + k * fresh, 1 + (k + 1) * fresh)]
        slots = [slot for slot, i in enumerate(pool) if log_w[i] > -math.inf]
        if not slots:
            continue
        members = [pool[slot] for slot in slots]
        if k >= burn_in:
            T.append(standard([log_w[i] for i in members], y[members]))
        alpha = alphas([log_w[i] for i in members])
        arrival = {i: clock[slot] / a for slot, i, a in zip(slots, members, alpha, strict=True) if a > 0}
        state = min(arrival, key=lambda i: arrival[i])
    return torch.stack(T).mean(0)
