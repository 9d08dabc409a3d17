"""The drift loss from its definition: a loop over class, scale and temperature, in log-space.

    A = √(softmax_row(−d/τ) · softmax_col(−d/τ)) over columns [neg | pos], a sample's distance to itself left out,
    α± = A± / S±,   T± by the paper's listing,   V_τ = S⁺S⁻ (T⁺ − T⁻)   or   V_τ = T⁺ − T⁻,
    loss = mean ‖f − sg(f + Σ_τ V_τ/√(mean V_τ² + 1e-8))‖².

It uses only plain PyTorch (cdist, log_softmax), does not batch groups and reads no values. It is the oracle of the
tests and the baseline of the benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class LiteralField(NamedTuple):
    """The field of one group at one temperature and the quantities that it was computed from."""

    V: Tensor
    """[n, D] with the masses of the product form over the largest of them."""
    log_scale: Tensor | float
    """log of that largest mass: the raw field is V · exp(log_scale)."""
    alpha_neg: Tensor
    alpha_pos: Tensor


class LiteralGroup(NamedTuple):
    """One group: its loss, its field at every temperature, and the distances to [gen | neg | pos]."""

    loss: Tensor
    fields: list[LiteralField]
    d: Tensor


def literal_drift_loss(
    gen: Tensor,
    pos: Tensor,
    neg: Tensor | None = None,
    *,
    temperatures: Sequence[float] = (0.02, 0.05, 0.2),
    normalization: str = "bidirectional",
    form: str = "product",
    abc_pos: bool = True,
    abc_neg: bool = True,
    weight_neg: Tensor | None = None,
    feature_scale: str = "standardize-l2",
    scale_over_batch: bool = False,
) -> Tensor:
    """loss [C, S] of gen [C, S, n, D], pos [C, S, m, D] and neg [C, S, u, D] with weights [C, S, u]."""
    groups = literal_groups(
        gen,
        pos,
        neg,
        temperatures=temperatures,
        normalization=normalization,
        form=form,
        abc_pos=abc_pos,
        abc_neg=abc_neg,
        weight_neg=weight_neg,
        feature_scale=feature_scale,
        scale_over_batch=scale_over_batch,
    )
    return torch.stack([torch.stack([group.loss for group in of_class]) for of_class in groups])


def literal_groups(
    gen: Tensor,
    pos: Tensor,
    neg: Tensor | None,
    *,
    temperatures: Sequence[float],
    normalization: str,
    form: str,
    abc_pos: bool,
    abc_neg: bool,
    weight_neg: Tensor | None,
    feature_scale: str,
    scale_over_batch: bool,
) -> list[list[LiteralGroup]]:
    """Compute every group, [class][scale]."""
    C, S = gen.shape[:2]
    mean_d = None
    if feature_scale == "mean-distance" and scale_over_batch:
        sums = [
            _sum_of_distances(gen[c, s].detach(), pos[c, s], *_negatives(neg, weight_neg, c, s))
            for c in range(C)
            for s in range(S)
        ]
        mean_d = sum(total for total, _ in sums) / sum(weight for _, weight in sums)
    result = []
    for c in range(C):
        of_class = []
        for s in range(S):
            group_neg, group_weight = _negatives(neg, weight_neg, c, s)
            f, y_pos, y_unc, d = _scaled(gen[c, s], pos[c, s], group_neg, group_weight, feature_scale, mean_d)
            fields = []
            with torch.no_grad():
                target = f
                others = d.clone().fill_diagonal_(math.inf)
                for tau in temperatures:
                    L = -others / tau
                    field = _field(f, y_pos, y_unc, group_weight, L, normalization, form, abc_pos, abc_neg)
                    target = target + field.V / (field.V.square().mean() + 1e-8).sqrt()
                    fields.append(field)
            loss = (f - target).square().mean()
            of_class.append(LiteralGroup(loss, fields, d))
        result.append(of_class)
    return result


def _negatives(neg: Tensor | None, weight: Tensor | None, c: int, s: int) -> tuple[Tensor | None, Tensor | None]:
    if neg is None:
        return None, None
    return neg[c, s], torch.ones_like(neg[c, s, :, 0]) if weight is None else weight[c, s]


def _scaled(
    gen: Tensor,
    pos: Tensor,
    neg: Tensor | None,
    weight: Tensor | None,
    feature_scale: str,
    mean_d: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(f, y_pos, y_unc, d) on the scale of the loss."""
    if feature_scale == "standardize-l2":
        both = torch.cat((gen.detach(), pos))
        mean, std = both.mean(0), both.std(0).clamp_min(1e-6)
        gen, pos, neg = (
            None if side is None else torch.nn.functional.normalize((side - mean) / std, dim=-1)
            for side in (gen, pos, neg)
        )
    d = _distances(gen.detach(), pos, neg)
    if feature_scale == "mean-distance":
        if mean_d is None:
            total, weights = _sum_of_distances(gen.detach(), pos, neg, weight)
            mean_d = total / weights
        c = (mean_d / math.sqrt(gen.shape[-1])).clamp_min(1e-3)
        gen, pos, neg = (None if side is None else side / c for side in (gen, pos, neg))
        d = d / mean_d.clamp_min(1e-3)
    return gen, pos, neg, d


def _distances(gen: Tensor, pos: Tensor, neg: Tensor | None) -> Tensor:
    """d [n, n + u + m] to the columns [gen | neg | pos]."""
    return torch.cdist(gen, torch.cat((gen, pos) if neg is None else (gen, neg, pos)))


def _sum_of_distances(gen: Tensor, pos: Tensor, neg: Tensor | None, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Σ w d and Σ w over all pairs, the zeros from a sample to itself included."""
    d = _distances(gen, pos, neg).fill_diagonal_(0)
    ones = [torch.ones_like(d[0, : gen.shape[0]]), torch.ones_like(d[0, : pos.shape[0]])]
    w = torch.cat(ones if weight is None else [ones[0], weight, ones[1]]).expand_as(d)
    return (d * w).sum(), w.sum()


def _field(
    f: Tensor,
    y_pos: Tensor,
    y_unc: Tensor | None,
    weight: Tensor | None,
    L: Tensor,
    normalization: str,
    form: str,
    abc_pos: bool,
    abc_neg: bool,
) -> LiteralField:
    """V at the queries f from L = −d/τ over columns [gen | neg | pos], −∞ from a sample to itself."""
    n, u = f.shape[0], 0 if y_unc is None else y_unc.shape[0]
    log_row = torch.log_softmax(L, 1)
    log_A = log_row if normalization == "row" else 0.5 * (log_row + torch.log_softmax(L, 0))
    log_w = log_A
    if normalization == "bidirectional-loo":
        log_w = 0.5 * (log_row + _log_column_without_own(L, log_row))
    if n == 1:  # nothing reaches the query's own column, whose softmax is 0/0
        log_A[0, 0] = log_w[0, 0] = -math.inf
    if weight is not None:
        log_weight = torch.cat((weight.new_zeros(n), weight.log(), weight.new_zeros(y_pos.shape[0])))
        log_A, log_w = log_A + log_weight, log_w + log_weight
    alpha_pos = torch.softmax(log_w[:, n + u :], 1)
    T_pos = _abc(alpha_pos, y_pos) if abc_pos else alpha_pos @ y_pos
    if n + u == 1:  # the only negative is the query itself
        V = torch.zeros_like(f) if form == "product" else T_pos - f
        return LiteralField(V, 0.0, torch.zeros_like(alpha_pos[:, :1]), alpha_pos)
    alpha_neg = torch.softmax(log_w[:, : n + u], 1)
    y_neg = f if y_unc is None else torch.cat((f, y_unc))
    if not abc_neg:
        T_neg = alpha_neg @ y_neg
    elif y_unc is None:
        T_neg = _abc(alpha_neg, y_neg)
    else:
        T_neg = _stratified_abc(alpha_neg, y_neg, n)
    if form == "separate":
        return LiteralField(T_pos - T_neg, 0.0, alpha_neg, alpha_pos)
    log_mass = log_A[:, n + u :].logsumexp(1, keepdim=True) + log_A[:, : n + u].logsumexp(1, keepdim=True)
    largest = log_mass.max()
    return LiteralField((log_mass - largest).exp() * (T_pos - T_neg), largest, alpha_neg, alpha_pos)


def _log_column_without_own(L: Tensor, log_row: Tensor) -> Tensor:
    """log k_ij / Σ_{i'≠i} k_i'j, each sum computed separately; the row weight where no other query has the column."""
    n, columns = L.shape
    result = torch.empty_like(L)
    for i in range(n):
        others = torch.arange(n) != i
        for j in range(columns):
            rest = L[others, j]
            alone = bool((rest == -math.inf).all())
            result[i, j] = log_row[i, j] if alone else L[i, j] - rest.logsumexp(0)
    return result


def _abc(alpha: Tensor, y: Tensor) -> Tensor:
    """The paper's listing."""
    a2 = alpha**2
    return (1 - a2.sum(-1, keepdim=True)) * (alpha @ y) + a2 @ y


def _stratified_abc(alpha: Tensor, y: Tensor, n: int) -> Tensor:
    """T + Σα²(y − T) − Σ_s (1/n_s)(Σ_s α)(Σ_s α(y − T)): n − 1 other generated negatives, then unconditional ones."""
    T = alpha @ y
    from_T = y - T.unsqueeze(-2)  # [n, columns, D]
    corrected = T + (alpha.square().unsqueeze(-1) * from_T).sum(-2)
    for members, n_s in ((slice(None, n), n - 1), (slice(n, None), y.shape[0] - n)):
        if n_s > 0:
            a = alpha[:, members]
            corrected = corrected - a.sum(-1, keepdim=True) * (a.unsqueeze(-1) * from_T[:, members]).sum(-2) / n_s
    return corrected
