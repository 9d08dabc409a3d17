"""Matched fields from their definition: a loop over queries, windows and references, in Python floats."""

from __future__ import annotations

import math

import torch
from oracles.field import _log_kernel, literal_centroid, literal_drift, log_of_sum
from torch import Tensor


def literal_windows(n: int, s: int) -> list[list[int]]:
    """The windows of s references on a ring of n, starting at every multiple of gcd(n, s)."""
    return [[(start + k) % n for k in range(s)] for start in range(0, n, math.gcd(n, s))]


def literal_window_mean(log_w: list[float], y: Tensor, estimator: str, s: int) -> Tensor:
    """The mean over windows of the corrected centroid of every window."""
    windows = literal_windows(len(log_w), s)
    return torch.stack([literal_centroid([log_w[j] for j in w], y[w], estimator) for w in windows]).mean(0)


def literal_matched_drift(
    x: Tensor,
    y_pos: Tensor,
    y_neg: Tensor,
    *,
    tau: float,
    normalization: str = "row",
    form: str = "separate",
    estimator: str = "abc",
    own: bool = False,
    matched: bool = True,
    kernel: str = "laplace",
    relative: bool = False,
    use_pos: Tensor | None = None,
    use_neg: Tensor | None = None,
) -> Tensor:
    """V [B, D]: the mean over pairs of windows of the field of each pair. With `own`, query i is negative i.

    With `relative`, V is divided by the largest mass S⁺S⁻ of a query, the mean over its windows. `use_pos` [B, n] and
    `use_neg` [B, m] say which references each query uses. The others are left out of their windows.
    """
    use_pos = torch.ones(len(x), len(y_pos), dtype=torch.bool) if use_pos is None else use_pos
    use_neg = torch.ones(len(x), len(y_neg), dtype=torch.bool) if use_neg is None else use_neg
    V, masses = [], []
    for i in range(len(x)):
        negatives = [(i + 1 + t) % len(y_neg) for t in range(len(y_neg) - 1)] if own else list(range(len(y_neg)))
        n, m = len(y_pos), len(negatives)
        s_neg, s_pos = (min(n, m), min(n, m)) if matched else (m, n)
        fields = []
        for w_neg in literal_windows(m, s_neg):
            for w_pos in literal_windows(n, s_pos):
                w_all = [negatives[j] for j in w_neg]
                R, B = (y_pos[w_pos], use_pos[:, w_pos]), (y_neg[w_all], use_neg[:, w_all])
                fields.append(_pair_field(i, x, R, B, tau, normalization, form, estimator, kernel))
        V.append(torch.stack([field for field, _ in fields]).mean(0))
        masses.append(sum(mass for _, mass in fields) / len(fields))
    return torch.stack(V) / max(masses) if relative else torch.stack(V)


def _pair_field(i, x, R, B, tau, normalization, form, estimator, kernel) -> tuple[Tensor, float]:
    """The field of query i from one window of each side, and its mass: 1 but for the product form.

    A window is its references [s, D] and which of them each query uses [queries, s].
    """
    if normalization in ("bidirectional", "bidirectional-loo"):
        options = {"normalization": normalization, "form": form, "kernel": kernel, "use_pos": R[1], "use_neg": B[1]}
        result = literal_drift(x, R[0], B[0], tau=tau, estimator_pos=estimator, estimator_neg=estimator, **options)
        return result.V[i], math.exp(result.log_mass[i]) if form == "product" else 1.0
    if normalization == "sinkhorn":
        return _sinkhorn_side(i, x, *R, tau, estimator, kernel) - _sinkhorn_side(i, x, *B, tau, estimator, kernel), 1.0
    R, B = R[0][R[1][i]], B[0][B[1][i]]
    if form == "potential":
        return _potential_side(x[i], R, tau, estimator, kernel) - _potential_side(x[i], B, tau, estimator, kernel), 1.0
    log_k = [[_log_kernel(x[i], y, tau, kernel) for y in side] for side in (R, B)]
    log_r = log_of_sum(log_k[0] + log_k[1])
    T, log_S = [], []
    for side, logs in zip((R, B), log_k, strict=True):
        log_w = []
        for j, each in enumerate(logs):
            if normalization == "row":
                log_w.append(each - log_r)
                continue
            others = [_log_kernel(side[k], side[j], tau, kernel) for k in range(len(side)) if k != j]
            log_w.append(each - (log_r + log_of_sum([each, *others])) / 2)
        T.append(literal_centroid(log_w, side, estimator))
        log_S.append(log_of_sum(log_w))
    mass = math.exp(sum(log_S)) if form == "product" else 1.0
    return mass * (T[0] - T[1]), mass


def _potential_side(x: Tensor, y: Tensor, tau: float, estimator: str, kernel: str) -> Tensor:
    """Σ k (y − x) / Σ k#, corrected as (1 − Σβ²) R + Σ α_i β_i (y_i − x) for "abc"."""
    r = [math.dist(x.tolist(), each.tolist()) for each in y]
    if kernel == "laplace":
        k, sharp = [math.exp(-d / tau) for d in r], [tau * (d + tau) * math.exp(-d / tau) for d in r]
    else:
        k = [math.exp(-d * d / (2 * tau * tau)) for d in r]
        sharp = [tau * tau * each for each in k]
    alpha = torch.tensor(k, dtype=y.dtype) / math.fsum(sharp)
    beta = torch.tensor(sharp, dtype=y.dtype) / math.fsum(sharp)
    R = alpha @ (y - x)
    return R if estimator == "standard" else (1 - (beta**2).sum()) * R + (alpha * beta) @ (y - x)


def _sinkhorn_side(
    i: int, x: Tensor, y: Tensor, use: Tensor, tau: float, estimator: str, kernel: str, updates: int = 20
) -> Tensor:
    """The row i of the coupling of all queries with the references y that they use, in linear space; rows last."""
    y, use = y[use.any(0)], use[:, use.any(0)]
    K = torch.tensor([[math.exp(_log_kernel(each, ref, tau, kernel)) for ref in y] for each in x], dtype=y.dtype) * use
    u = 1 / K.sum(1)
    for _ in range(updates):
        v = (len(x) / len(y)) / (u @ K)
        u = 1 / (K @ v)
    P = u[i] * K[i] * v
    return literal_centroid(P[use[i]].log().tolist(), y[use[i]], estimator)
