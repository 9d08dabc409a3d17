"""The drifting field from its definition: Python floats, one query and one reference at a time.

Nothing is vectorized. A masked reference is left out of the lists instead of having the weight 0, and a column sum
without the own query is computed separately.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class LiteralDrift(NamedTuple):
    V: Tensor
    T_pos: Tensor
    T_neg: Tensor
    n_eff_pos: Tensor
    n_eff_neg: Tensor
    valid: Tensor
    log_mass: Tensor
    """log S⁺S⁻; −∞ where a side is empty."""


def log_of_sum(logarithms: list[float]) -> float:
    """log Σ exp(l); −∞ for an empty list."""
    top = max(logarithms, default=-math.inf)
    if top == -math.inf:
        return -math.inf
    return top + math.log(math.fsum(math.exp(each - top) for each in logarithms))


def literal_log_affinity(log_k: list[list[float]], normalization: str) -> tuple[list[list[float]], list[list[float]]]:
    """Return (log-weights of the centroids, log-affinities of the masses) from log k, −∞ where masked."""
    B, columns = len(log_k), len(log_k[0])
    log_w = [[-math.inf] * columns for _ in range(B)]
    log_A = [[-math.inf] * columns for _ in range(B)]
    for i in range(B):
        log_r = log_of_sum(log_k[i])
        for j in range(columns):
            if log_k[i][j] == -math.inf:
                continue
            if normalization == "row":
                log_w[i][j] = log_A[i][j] = log_k[i][j] - log_r
                continue
            log_c = log_of_sum([log_k[other][j] for other in range(B)])
            log_A[i][j] = log_k[i][j] - (log_r + log_c) / 2
            log_w[i][j] = log_A[i][j]
            if normalization == "bidirectional-loo":
                log_c_others = log_of_sum([log_k[other][j] for other in range(B) if other != i])
                if log_c_others == -math.inf:
                    log_c_others = log_r
                log_w[i][j] = log_k[i][j] - (log_r + log_c_others) / 2
    return log_w, log_A


def weights(log_w: list[float]) -> list[float]:
    """α = w / Σw."""
    total = log_of_sum(log_w)
    return [math.exp(each - total) for each in log_w]


def literal_centroid(log_w: list[float], y: Tensor, estimator: str) -> Tensor:
    """The corrected centroid of references y [n, D] with finite log-weights, as the paper writes each estimator."""
    alpha = torch.tensor(weights(log_w), dtype=y.dtype)
    T, n = alpha @ y, len(log_w)
    if estimator == "standard":
        return T
    if estimator == "abc":
        a2 = alpha**2
        return (1 - a2.sum()) * T + a2 @ y
    if estimator == "abc2":
        D = {k: alpha**k @ y - (alpha**k).sum() * T for k in (2, 3)}
        return T + (1 - 3 * (alpha**2).sum()) * D[2] + 2 * D[3]
    if estimator == "jackknife":
        if n == 1:
            return T
        left_out = []
        for i in range(n):
            kept = [j for j in range(n) if j != i]
            left_out.append(literal_centroid([log_w[j] for j in kept], y[kept], "standard"))
        return n * T - (n - 1) * torch.stack(left_out).mean(0)
    raise KeyError(estimator)


def literal_drift(
    x: Tensor,
    y_pos: Tensor,
    y_neg: Tensor,
    *,
    tau: float,
    normalization: str = "row",
    form: str = "separate",
    estimator_pos: str = "abc",
    estimator_neg: str = "abc",
    use_pos: Tensor | None = None,
    use_neg: Tensor | None = None,
    kernel: str = "laplace",
) -> LiteralDrift:
    """The field at x [B, D]; use_pos [B, n] and use_neg [B, m] say which references each query uses."""
    B, n, m = len(x), len(y_pos), len(y_neg)
    y = torch.cat((y_neg, y_pos))
    use = torch.cat(
        (
            torch.ones(B, m, dtype=torch.bool) if use_neg is None else use_neg,
            torch.ones(B, n, dtype=torch.bool) if use_pos is None else use_pos,
        ),
        1,
    )
    log_k = [[_log_kernel(x[i], y[j], tau, kernel) if use[i, j] else -math.inf for j in range(m + n)] for i in range(B)]
    log_w, log_A = literal_log_affinity(log_k, normalization)
    rows = []
    for i in range(B):
        T, n_eff, log_S = {}, {}, {}
        for side, estimator, columns in (("neg", estimator_neg, range(m)), ("pos", estimator_pos, range(m, m + n))):
            used = [j for j in columns if use[i, j]]
            log_S[side] = log_of_sum([log_A[i][j] for j in used])
            own = [log_w[i][j] for j in used]
            T[side] = literal_centroid(own, y[used], estimator) if used else x[i]
            n_eff[side] = 1 / math.fsum(a * a for a in weights(own)) if used else 0.0
        log_mass = log_S["pos"] + log_S["neg"]
        factor = 1.0 if form == "separate" else math.exp(log_mass)
        V = factor * (T["pos"] - T["neg"])
        rows.append((V, T["pos"], T["neg"], n_eff["pos"], n_eff["neg"], log_mass > -math.inf, log_mass))
    V, T_pos, T_neg, n_eff_pos, n_eff_neg, valid, log_mass = zip(*rows, strict=True)
    return LiteralDrift(
        torch.stack(V),
        torch.stack(T_pos),
        torch.stack(T_neg),
        torch.tensor(n_eff_pos, dtype=x.dtype),
        torch.tensor(n_eff_neg, dtype=x.dtype),
        torch.tensor(valid),
        torch.tensor(log_mass, dtype=x.dtype),
    )


def _log_kernel(x: Tensor, y: Tensor, tau: float, kernel: str) -> float:
    d = math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)))
    return -d / tau if kernel == "laplace" else -d * d / (2 * tau * tau)
