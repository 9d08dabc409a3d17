"""log-kernels of windows → γ of both sides: matched fields, and normalizations that treat each side by itself.

The negatives and the positives are split into windows R and B of equal size (`centroids.matching`). A pair of windows
has the field Φ(x; R, B) of its own masses and centroids, and V is the mean over pairs:

    V = mean_w S⁺_w S⁻_w (T⁺_w − T⁻_w)   (product),   V = mean_w (T⁺_w − T⁻_w)   (separate).

If Φ(x; R, B) = −Φ(x; B, R) and, given x, R and B are exchangeable at q = p, then E[V] = 0 there. That is so if every
quantity of a window is computed from the query and its own window alone, or from all queries if the negatives are
independent of them. Without matching, each side is one window of all its references.

**Normalizations.** With the log-weights l = log k − ½ log c of a reference j in window B,

| normalization | c_j                                                                                            |
|---------------|------------------------------------------------------------------------------------------------|
| row           | none: l = log k                                                                                |
| bidirectional | Σ over all queries of k(x_i, y_j)                                                              |
| symmetric     | k(x, y_j) + Σ_{l∈B, l≠j} k(y_l, y_j): the query and the other references of its own window     |
| sinkhorn      | l = log P, the coupling P = diag(u) K diag(v) with row sums 1 and column sums g/s              |

The log-mass of a side is log Σ exp(l) − e log r, where r = Σk over both windows, and e = 1 for row and ½ otherwise.
Windows are weighted by their masses, which gives the same V as the mean above: γ = Σ_w m_w γ_w / Σ_w m_w and
S⁺S⁻ = mean_w m_w with m_w = S⁺_w S⁻_w.

**Sinkhorn.** The plan is a coupling of the whole batch, so that the theorem of ABC does not apply to its rows. Measured
against the plan of the population, ABC leaves 90 to 95 % of the bias of the plain rows and does not raise the variance
(study `equilibrium`). It is the default here as well; larger batches lower the bias more.

**Potential** (`form="potential"`, row only). With k# (`kernels.sharp_log_ratio`) in place of k below the fraction line,

    V⁺(x) = Σ_j k(x, y_j) (y_j − x) / Σ_j k#(x, y_j) = ∇ log Σ_j k#(x, y_j)

is a gradient. It is the centroid with weights k# of the vectors ρ_j (y_j − x), ρ = k/k#, so that every estimator
applies to it: the coefficient of y_j is ρ_j γ_j with γ from log k#.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.centroids.estimator import Estimator
from truedrift.centroids.matching import Windows, split_window_weights, window_weights
from truedrift.field.affinity import SideStatistics, SideWeights
from truedrift.field.spec import FieldSpec
from truedrift.kernels.kernel import LogKernel
from truedrift.kernels.precision import to_widest
from truedrift.kernels.weights import logsumexp, logsumexp_and_leave_one_out, lowest_finite, softmax

SINKHORN_ITERATIONS = 20


class Side(NamedTuple):
    """One side of the field: its references as seen from every query."""

    log_k: Tensor
    """[..., B, n] log-kernels, −∞ where masked."""
    windows: Windows
    estimator: Estimator
    log_columns: Tensor | None = None
    """[..., B or 1, W, s] log Σ_{l∈B, l≠j} k(y_l, y_j) of every window, for "symmetric"."""
    log_ratio: Tensor | None = None
    """[..., B, n] log k#/k, for the form "potential"."""


class MatchedWeights(NamedTuple):
    """γ [..., B, n] of both sides, and log S⁺S⁻ [..., B, 1]."""

    neg: Tensor
    pos: Tensor
    log_mass: Tensor


def matched_weights(
    neg: Side,
    pos: Side,
    normalization: str,
    form: str,
    generator: torch.Generator | None = None,
    *,
    with_mass: bool = True,
) -> MatchedWeights:
    """Compute γ of both sides as means over windows.

    Args:
        neg: The negatives.
        pos: The positives. One of the sides has one window, or both have the same number.
        normalization: "row", "bidirectional", "bidirectional-loo", "symmetric" or "sinkhorn".
        form: "separate", "product" or "potential".
        generator: Random numbers for estimators that draw.
        with_mass: Whether to compute the masses if the form does not need them.

    Returns:
        γ of both sides and the mean mass of the windows, or the logarithm 0 instead of it.
    """
    log_w = [_log_weights(side, normalization) for side in (neg, pos)]
    # The mass of every pair of windows; only the product form needs it.
    log_m = None
    if (form == "product" or with_mass) and normalization != "sinkhorn":
        log_m = _log_masses(neg, pos, normalization, log_w)
    # γ as the mean over windows.
    shares = softmax(log_m) if log_m is not None and form == "product" else None
    gamma_neg, gamma_pos = (
        _mean_over_windows(side, each, shares, generator) for side, each in zip((neg, pos), log_w, strict=True)
    )
    if log_m is None:
        return MatchedWeights(gamma_neg, gamma_pos, torch.zeros_like(pos.log_k[..., :1]))
    return MatchedWeights(gamma_neg, gamma_pos, logsumexp(log_m, -1) - math.log(log_m.shape[-1]))


def _log_masses(neg: Side, pos: Side, normalization: str, log_w: Sequence[Tensor]) -> Float[Tensor, "*batch B W"]:
    """Return log S⁺S⁻ of every pair of windows."""
    log_K = [side.windows.logsumexp(side.log_k).clamp_min(lowest_finite(side.log_k)) for side in (neg, pos)]
    log_r = torch.logaddexp(*log_K).clamp_min(lowest_finite(log_K[0]) / 2)  # finite differences below
    if normalization == "row":
        return (log_K[0] - log_r) + (log_K[1] - log_r)
    sums = [_window_sums(side, normalization, each) for side, each in zip((neg, pos), log_w, strict=True)]
    return sums[0] + sums[1] - log_r


def _log_weights(side: Side, normalization: str) -> Tensor:
    """Return l [..., B, n], or [..., B, W, s] where it depends on the window."""
    if side.log_ratio is not None:
        return side.log_k + side.log_ratio
    if normalization == "row":
        return side.log_k
    if normalization == "bidirectional":
        return side.log_k - 0.5 * logsumexp(side.log_k, -2)
    if normalization == "bidirectional-loo":
        others = logsumexp_and_leave_one_out(side.log_k, -2)[1]
        return side.log_k - 0.5 * torch.where(others > -math.inf, others, 0)
    log_k = side.windows.split(side.log_k)
    if normalization == "sinkhorn":
        return sinkhorn_log_plan(log_k)
    assert side.log_columns is not None  # the callers provide it for "symmetric"
    log_c = torch.logaddexp(log_k, side.log_columns).clamp_min(lowest_finite(log_k))  # −∞ − (−∞) would be NaN
    return log_k - 0.5 * log_c


def _window_sums(side: Side, normalization: str, log_w: Tensor) -> Tensor:
    """Return log Σ exp(l) [..., B, W] of every window, without the row sum; with all queries in c for the masses."""
    if normalization == "bidirectional-loo":
        log_w = _log_weights(side, "bidirectional")
    if log_w.ndim > side.log_k.ndim:
        return logsumexp(log_w, -1).squeeze(-1)
    return side.windows.logsumexp(log_w)


def _mean_over_windows(side: Side, log_w: Tensor, shares: Tensor | None, generator: torch.Generator | None) -> Tensor:
    """Return γ [..., B, n] of a side, times ρ for the form "potential"."""
    weigh = split_window_weights if log_w.ndim > side.log_k.ndim else window_weights
    gamma = weigh(log_w, side.windows, side.estimator, shares if side.windows.count > 1 else None, generator)
    # ρ is up to 1/τ², beyond float32 for small τ.
    return gamma if side.log_ratio is None else to_widest(gamma) * (-to_widest(side.log_ratio)).exp()


def sinkhorn_log_plan(
    log_k: Float[Tensor, "*batch B W s"], iterations: int = SINKHORN_ITERATIONS
) -> Float[Tensor, "*batch B W s"]:
    """Compute log P of the coupling P = diag(u) K diag(v) with row sums 1 and column sums B/s.

    The last update is that of the rows, so that their sums are 1 to rounding. On the CPU the iteration stops when an
    update changes nothing but the last digits.

    Args:
        log_k: Log-kernels of B queries and the s references of every window, −∞ where masked.
        iterations: The largest number of updates of columns and rows.

    Returns:
        log P [..., B, W, s].
    """
    B, s = log_k.shape[-3], log_k.shape[-1]
    can_stop = log_k.device.type == "cpu" and not torch.compiler.is_compiling() and not _is_wrapped(log_k)
    tolerance = 4 * torch.finfo(log_k.dtype).eps
    log_u = -logsumexp(log_k, -1)
    for _ in range(iterations):
        log_v = math.log(B / s) - logsumexp(log_k + log_u, -3)
        previous, log_u = log_u, -logsumexp(log_k + log_v, -1)
        if can_stop and bool(((log_u - previous).abs() <= tolerance * log_u.abs().clamp_min(1)).all()):
            break
    return log_k + log_u + log_v


def _is_wrapped(tensor: Tensor) -> bool:
    """Return whether torch.func transforms the tensor, so that its values cannot be read."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


class Columns(NamedTuple):
    """log Σ_{l≠j} k(y_l, y_j) [..., B or 1, W, s] over the other references l of the window of j, for "symmetric"."""

    neg: Tensor | None
    """None if the negatives are the queries: their log-kernels are known."""
    pos: Tensor


def window_layout(neg: int, pos: int, spec: FieldSpec, *, own: bool) -> tuple[Windows, Windows]:
    """Return the windows of both sides; `own` if the own column of each query is among the negatives.

    The negatives of a query are the others in cyclic order if they are split, and all columns, the own one masked, if
    they are one window.
    """
    m = neg - 1 if own else neg
    s = min(m, pos) if spec.matched else max(m, pos)
    whole = Windows(neg, neg)
    return whole if s >= m else Windows(m, s), Windows(pos, min(s, pos))


def matched_side_weights(
    log_k: Float[Tensor, "*batch B columns"],
    neg: int,
    spec: FieldSpec,
    *,
    own: bool = False,
    columns: Columns | None = None,
    log_ratio: Tensor | None = None,
    complete: bool = False,
    generator: torch.Generator | None = None,
) -> SideWeights:
    """Compute the weights of both sides by windows.

    Args:
        log_k: Log-kernels [..., B, columns] over columns [neg | pos].
        neg: The number of negatives.
        spec: Normalization, form and estimators.
        own: Whether query i is negative i, whose log-kernel is −∞.
        columns: Column sums among the references, for "symmetric".
        log_ratio: log k#/k in the shape of `log_k`, for the form "potential".
        complete: Whether to compute statistics, and the masses if the form does not need them.
        generator: Random numbers for estimators that draw.

    Returns:
        γ and the masses of both sides.
    """
    windows_neg, windows_pos = window_layout(neg, log_k.shape[-1] - neg, spec, own=own)
    others = _others(neg, log_k.device) if windows_neg.n < neg else None
    # The log-kernels of both sides, those of split negatives in cyclic order.
    log_k_neg, log_k_pos = log_k[..., :neg], log_k[..., neg:]
    columns_neg, columns_pos = (None, None) if columns is None else columns
    if columns is not None and columns_neg is None:
        columns_neg = _own_columns(log_k_neg, windows_neg, others)
    ratio_neg, ratio_pos = (None, None) if log_ratio is None else (log_ratio[..., :neg], log_ratio[..., neg:])
    if others is not None:
        log_k_neg = log_k_neg.gather(-1, others.expand(*log_k_neg.shape[:-2], -1, -1))
        ratio_neg = None if ratio_neg is None else ratio_neg.gather(-1, others.expand_as(log_k_neg))
    # γ of both sides.
    sides = (
        Side(log_k_neg, windows_neg, spec.estimator_neg, columns_neg, ratio_neg),
        Side(log_k_pos, windows_pos, spec.estimator_pos, columns_pos, ratio_pos),
    )
    weights = matched_weights(*sides, spec.normalization, spec.form, generator, with_mass=complete)
    gamma = _join(weights, others)
    log_mass = weights.log_mass.clamp_min(lowest_finite(log_k))
    largest = log_mass.amax(-2, keepdim=True).clamp_min(lowest_finite(log_k) / 2)
    statistics = None
    if complete:
        statistics_neg, statistics_pos = (_window_statistics(side, spec.normalization, generator) for side in sides)
        statistics = statistics_neg, statistics_pos
    return SideWeights(neg, None, gamma, log_mass, largest, statistics)


def _window_statistics(side: Side, normalization: str, generator: torch.Generator | None) -> SideStatistics:
    """Compute the statistics of every window and return their means over windows."""
    log_w = _log_weights(side, normalization)
    log_w = log_w if log_w.ndim > side.log_k.ndim else side.windows.split(log_w)
    gamma = side.estimator.reweight(log_w, generator)
    return SideStatistics(*(each.mean(-1) for each in SideStatistics.of_weights(softmax(log_w), gamma)))


def _others(B: int, device: torch.device) -> Tensor:
    """Return the others [B, B − 1] of every query in cyclic order: i + 1, i + 2, …."""
    query = torch.arange(B, device=device).unsqueeze(-1)
    return (query + torch.arange(1, B, device=device)) % B


def _join(weights: MatchedWeights, others: Tensor | None) -> Tensor:
    """Return γ [..., B, columns] over [neg | pos], with 0 in the own columns if the negatives were in cyclic order."""
    neg = weights.neg
    if others is not None:
        B = len(others)
        place = (torch.arange(B, device=neg.device) - torch.arange(B, device=neg.device).unsqueeze(-1) - 1) % B
        neg = torch.nn.functional.pad(neg, (0, 1)).gather(-1, place.expand(*neg.shape[:-2], -1, -1))
    return torch.cat((neg, weights.pos), -1)


def _own_columns(log_k: Tensor, windows: Windows, others: Tensor | None) -> Float[Tensor, "*batch B W s"]:
    """Return log Σ_{l≠j} k(x_l, x_j) over the others l of query i in the window of j."""
    if others is None:  # all queries but i and j
        return logsumexp_and_leave_one_out(log_k, -2)[1].unsqueeze(-2)
    members = windows.split(others)  # [B, W, s]
    return logsumexp(log_k[..., members.unsqueeze(-1), members.unsqueeze(-2)], -2).squeeze(-2)


def log_columns(
    kernel: LogKernel, y: Float[Tensor, "*batch n D"], tau: float | Tensor, windows: Windows, use: Tensor | None = None
) -> Float[Tensor, "*batch B W s"]:
    """Compute log Σ_{l≠j} k(y_l, y_j) over the references l of the window of j.

    Args:
        kernel: The log-kernel.
        y: References [..., n, D].
        tau: Temperature.
        windows: The windows of the n references.
        use: Which references each query uses, [..., B or 1, n]; all by default.

    Returns:
        [..., B or 1, W, s]
    """
    if windows.are_blocks and not isinstance(tau, Tensor):
        blocks = y.unflatten(-2, (windows.count, windows.size))
        return sum_columns(kernel(blocks, blocks, tau), None if use is None else windows.split(use))
    members = windows.members(y.device)
    log_k = kernel(y, y, tau)[..., members.unsqueeze(-1), members.unsqueeze(-2)]
    return sum_columns(log_k, None if use is None else windows.split(use))


def sum_columns(
    log_k: Float[Tensor, "*batch W s s"], use: Bool[Tensor, "*mask W s"] | None = None
) -> Float[Tensor, "*batch B W s"]:
    """Return log Σ_{l≠j} exp(l_lj) of log-kernels [..., W, s, s] within every window."""
    log_k = log_k.masked_fill(torch.eye(log_k.shape[-1], dtype=torch.bool, device=log_k.device), -math.inf)
    log_k = log_k.unsqueeze(-4)
    if use is not None:
        log_k = log_k.masked_fill(~use.unsqueeze(-1), -math.inf)
    return logsumexp(log_k, -2).squeeze(-2)
