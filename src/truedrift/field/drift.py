"""V(x) = T⁺(x) − T⁻(x): the drifting field (`eq:meanshift`), the difference of two centroids.

T⁺ is the centroid of real samples (positives), which attract a query; T⁻ is the centroid of generated samples
(negatives), which repel it. `truedrift.field.affinity` computes the weights of both.
"""

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Bool, Float, Int, Tensor
from truedrift.centroids.centroid import broadcast_mask, prepare_mask
from truedrift.centroids.estimator import Estimator, weighted_mean
from truedrift.centroids.matching import Windows, count_per_window
from truedrift.errors import UserError
from truedrift.field.affinity import side_weights
from truedrift.field.checks import make_field_spec, require_sides
from truedrift.field.matching import Columns, log_columns, matched_side_weights, window_layout
from truedrift.field.spec import FieldSpec, Form, Normalization
from truedrift.kernels.kernel import LogKernel, log_kernel, sharp_log_ratio
from truedrift.kernels.precision import can_be_read, full_precision, to_widest
from truedrift.kernels.weights import apply_mask, logsumexp
from truedrift.summary import mean_value, summarize
from truedrift.tensor_checks import (
    require_broadcastable,
    require_features,
    require_finite,
    require_log_kernel,
    require_positive,
    require_same_dimension,
    require_temperature,
)


@dataclass(frozen=True)
class Drift:
    """The drifting field at every query and the quantities that it was computed from; the result of `drift`."""

    V: Tensor
    """[..., B, D] the field."""
    T_pos: Tensor
    """[..., B, D] centroid of the positives, or x if the query uses none."""
    T_neg: Tensor
    """[..., B, D] centroid of the negatives, or x if the query uses none."""
    n_eff_pos: Tensor
    """[..., B] effective sample size of the positives, 1/Σα²."""
    n_eff_neg: Tensor
    """[..., B] effective sample size of the negatives."""
    valid: Tensor
    """[..., B] whether the query uses a reference on both sides."""
    log_mass: Tensor
    """[..., B] log S⁺S⁻, the factor of the product form; below −10³⁸ where a side is empty."""

    def __repr__(self) -> str:
        n_eff = f"n_eff of positives {mean_value(self.n_eff_pos)}, of negatives {mean_value(self.n_eff_neg)}"
        return summarize(self, f"mean ‖V‖ {mean_value(self.V.norm(dim=-1))}, {n_eff}")


def drift(
    x: Float[Tensor, "*#batch B D"],
    y_pos: Float[Tensor, "*#batch n D"],
    y_neg: Float[Tensor, "*#batch m D"],
    *,
    tau: float | Tensor,
    normalization: Normalization = "row",
    form: Form = "separate",
    estimator_pos: str | Estimator = "abc",
    estimator_neg: str | Estimator = "abc",
    self_mask: bool | Int[Tensor, " B"] = False,
    mask_pos: Bool[Tensor, "*mask_pos n"] | None = None,
    mask_neg: Bool[Tensor, "*mask_neg m"] | None = None,
    kernel: str | LogKernel = "laplace",
    matched: bool = False,
    generator: torch.Generator | None = None,
    check_finite: bool = False,
) -> Drift:
    """Compute the drifting field V at queries x from positives y_pos and negatives y_neg.

    A side without references has T = x: it exerts no force in the separate form, and V = 0 in the product form.

    The defaults, `normalization="row"` and `form="separate"`, are those of the theorems. `drift_loss` has the defaults
    of the official code. Features are not scaled, so `tau` is in their units.

    Args:
        x: Queries [..., B, D].
        y_pos: Positives [..., n, D], which attract.
        y_neg: Negatives [..., m, D], which repel.
        tau: Temperature τ > 0 of the kernel.
        normalization: How the kernel matrix is normalized.
            "row": each row by itself, a softmax. The theorems on the bias and on ABC are about this one.
            "bidirectional": √(softmax over the row · softmax over the column), that of the official code. An O(1/n)
            bias remains with every estimator.
            "bidirectional-loo": the same without the query's own term in the column sums, which removes most of that
            bias from the positives.
            "symmetric": column sums over the references of the same side instead of the queries.
            "sinkhorn": rows and columns of both sides have equal sums, an optimal-transport plan.
        form: "separate": V = T⁺ − T⁻, that of the theorems. "product": V = S⁺S⁻ (T⁺ − T⁻) with the masses S±, that of
            the official code, small far from the data. "potential": a field that is a gradient, for "row" only.
        estimator_pos: Estimator of T⁺: "standard" (plain weights, bias O(1/n)), "abc" (O(1/n²)), "abc2" (O(1/n³)),
            "jackknife" (O(1/n²), weights may be negative), "bootstrap" (O(1/n²), draws random numbers), "br-snis"
            (resamples, needs several times the references), or an object.
        estimator_neg: Estimator of T⁻, one of the same.
        self_mask: True if y_neg[i] is x[i], so that a query does not repel itself. An int64 tensor [B] gives the
            column of each query among the negatives, −1 for none.
        mask_pos: Which positives to use (True), [..., n] or [..., B, n].
        mask_neg: Which negatives to use (True), [..., m] or [..., B, m].
        kernel: "laplace", exp(−d/τ), "gaussian", exp(−d²/2τ²), or a function (x, y, tau) → log k.
        matched: Whether both centroids are means over windows of min(n, m) references. The expected field is then
            exactly 0 if both sides have the same distribution. With `self_mask`, m counts the others of a query. Masks
            must leave equally many references in every window of both sides. This is checked on the CPU, and with
            `check_finite` on every device; a compiled function, and torch.func for a transformed mask, do not check it.
        generator: Random numbers for estimators that draw.
        check_finite: Whether to check the values of the tensors and the kernel. This synchronizes the device.

    Returns:
        The field, both centroids, the effective sample sizes and the masses.

    Raises:
        UserError: If an argument is invalid.

    Example:
        >>> import torch
        >>> from truedrift import drift
        >>> x, data = torch.zeros(2, 1), torch.tensor([[1.0], [1.0]])
        >>> drift(x, data, x, tau=0.5).V
        tensor([[1.],
                [1.]])
    """
    # Check the input and prepare the masks.
    spec = make_field_spec(normalization, form, estimator_pos, estimator_neg, matched)
    _check_input(x, y_pos, y_neg, tau, spec, self_mask)
    own = matched and self_mask is True
    kernel_function = log_kernel(kernel)
    given = [mask for mask in (mask_pos, mask_neg) if mask is not None]
    has_mask_neg = mask_neg is not None
    mask_pos, y_pos = prepare_mask(mask_pos, x, y_pos, "mask_pos")
    mask_neg, y_neg = prepare_mask(_with_self_mask(mask_neg, self_mask, x, y_neg), x, y_neg, "mask_neg")
    if matched and given and (check_finite or all(map(can_be_read, given))):
        _check_window_counts(_used(mask_pos, y_pos), _used(mask_neg, y_neg), spec, own=own)
    if check_finite:
        _check_values(x, y_pos, y_neg, tau, self_mask)
    # log k → weights of both sides → centroids → V.
    with full_precision(x):
        log_k_pos = apply_mask(kernel_function(x, y_pos, tau), mask_pos)
        log_k_neg = apply_mask(kernel_function(x, y_neg, tau), mask_neg)
        if check_finite:
            require_log_kernel(log_k_pos)
            require_log_kernel(log_k_neg)
        log_k, m = _join_sides(log_k_neg, log_k_pos), y_neg.shape[-2]
        if spec.per_side:
            columns = None
            if normalization == "symmetric":
                known = own and not has_mask_neg  # `log_k` contains those of the negatives
                columns = _columns(kernel_function, y_pos, y_neg, tau, spec, mask_pos, mask_neg, own=own, known=known)
            ratio = sharp_log_ratio(kernel, log_k, tau) if form == "potential" else None
            weights = matched_side_weights(
                log_k, m, spec, own=own, columns=columns, log_ratio=ratio, complete=True, generator=generator
            )
        else:
            weights = side_weights(log_k, m, spec, generator=generator)
        T_pos, has_pos = _side_centroid(weights.gamma_pos, x, y_pos, log_k_pos, form)
        T_neg, has_neg = _side_centroid(weights.gamma_neg, x, y_neg, log_k_neg, form)
        V = T_pos - T_neg
        if form == "product":  # in float32 a mass of 0 times a difference of ∞ would be NaN
            V = weights.log_mass.exp() * (to_widest(T_pos) - to_widest(T_neg))
    dtype = torch.promote_types(x.dtype, torch.promote_types(y_pos.dtype, y_neg.dtype))
    return Drift(
        V=V.to(dtype),
        T_pos=T_pos.to(dtype),
        T_neg=T_neg.to(dtype),
        n_eff_pos=weights.statistics_pos.n_eff,
        n_eff_neg=weights.statistics_neg.n_eff,
        valid=(has_pos & has_neg).squeeze(-1),
        log_mass=weights.log_mass.squeeze(-1),
    )


def _check_input(
    x: Tensor, y_pos: Tensor, y_neg: Tensor, tau: float | Tensor, spec: FieldSpec, self_mask: bool | Tensor
) -> None:
    """Require a temperature, shapes that fit each other, and sides that can be matched if they are."""
    require_temperature(tau)
    require_features("x", x, "B, D")
    require_features("y_pos", y_pos, "n, D")
    require_features("y_neg", y_neg, "m, D")
    require_same_dimension(x=x, y_pos=y_pos, y_neg=y_neg)
    require_broadcastable("x, y_pos, y_neg", x.shape[:-2], y_pos.shape[:-2], y_neg.shape[:-2])
    if spec.matched:
        _check_sides(spec, self_mask, y_pos.shape[-2], y_neg.shape[-2])


def _check_values(x: Tensor, y_pos: Tensor, y_neg: Tensor, tau: float | Tensor, self_mask: bool | Tensor) -> None:
    """Require finite samples, columns of `self_mask` that exist, and a positive temperature. Reads the values."""
    require_finite(x=x, y_pos=y_pos, y_neg=y_neg)
    _check_own_columns(self_mask, y_neg.shape[-2])
    require_positive("tau", tau)


def _join_sides(
    log_k_neg: Float[Tensor, "*#batch B m"], log_k_pos: Float[Tensor, "*#batch B n"]
) -> Float[Tensor, "*batch B columns"]:
    """Return the log-kernels over columns [neg | pos]."""
    leading = torch.broadcast_shapes(log_k_neg.shape[:-1], log_k_pos.shape[:-1])
    return torch.cat([side.expand(*leading, side.shape[-1]) for side in (log_k_neg, log_k_pos)], -1)


def _columns(
    kernel: LogKernel,
    y_pos: Float[Tensor, "*batch_pos n D"],
    y_neg: Float[Tensor, "*batch_neg m D"],
    tau: float | Tensor,
    spec: FieldSpec,
    mask_pos: Tensor | None,
    mask_neg: Tensor | None,
    *,
    own: bool,
    known: bool,
) -> Columns:
    """Compute the column sums among the references of each side; not those of the negatives if they are known."""
    windows_neg, windows_pos = window_layout(y_neg.shape[-2], y_pos.shape[-2], spec, own=own)
    neg = None if known else _log_columns_neg(kernel, y_neg, tau, windows_neg, mask_neg)
    return Columns(neg, log_columns(kernel, y_pos, tau, windows_pos, mask_pos))


def _side_centroid(
    gamma: Tensor, x: Tensor, y: Tensor, log_k: Float[Tensor, "*batch B n"], form: Form
) -> tuple[Tensor, Bool[Tensor, "*batch B 1"]]:
    """Return the centroid of a side, x where the query uses no reference of it, and whether it uses one."""
    has_reference = (log_k > -torch.inf).any(-1, keepdim=True)
    # The form "potential": x + Σ_j ρ_j γ_j (y_j − x).
    T = _shifted_mean(gamma, x, y) if form == "potential" else weighted_mean(gamma, y)
    return torch.where(has_reference, T, x), has_reference


def _shifted_mean(gamma: Tensor, x: Tensor, y: Tensor) -> Float[Tensor, "*batch B D"]:
    """Compute x + Σ_j γ_j (y_j − x) for weights of any sum, in the widest format.

    For the form "potential" the weights are up to 1/τ². The difference of Σγy and x Σγ cancels, and it would be ∞ − ∞
    far from the origin. Weights with Σ|γ| ≤ 1 keep both within the range of y and x; their factor comes last.
    """
    gamma, x = to_widest(gamma), to_widest(x)
    factor = gamma.abs().sum(-1, keepdim=True).clamp_min(1).detach()  # any value gives the same result
    share = gamma / factor
    return x + factor * (weighted_mean(share, y) - share.sum(-1, keepdim=True) * x)


def _check_sides(spec: FieldSpec, self_mask: bool | Tensor, n: int, m: int) -> None:
    """Require a `self_mask` and sizes with which matched windows are defined."""
    if not isinstance(self_mask, bool):
        value = "a tensor of columns" if isinstance(self_mask, Tensor) else repr(self_mask)
        fix = "pass True if y_neg[i] is x[i], and False otherwise"
        raise UserError(f"is {value} with matched=True", "must be True or False", fix, field="self_mask")
    require_sides(spec, n, m - int(self_mask), independent=not self_mask)


def _used(mask: Tensor | None, y: Tensor) -> Tensor:
    """Return the mask, or one that uses all references."""
    return torch.ones(1, y.shape[-2], dtype=torch.bool, device=y.device) if mask is None else mask


def _check_window_counts(
    used_pos: Bool[Tensor, "*mask_pos n"], used_neg: Bool[Tensor, "*mask_neg m"], spec: FieldSpec, *, own: bool
) -> None:
    """Require that all windows of both sides keep the same number of references. Reads the masks.

    Args:
        used_pos: Which positives are used, [..., B or 1, n].
        used_neg: Which negatives are used, [..., B or 1, m]; without the own column of each query if `own`.
        spec: The options.
        own: Whether query i is negative i.
    """
    m, n = used_neg.shape[-1], used_pos.shape[-1]
    windows_neg, windows_pos = window_layout(m, n, spec, own=own)
    if windows_neg.n < m:
        used_neg = _take_others(used_neg)
    counts_neg = count_per_window(used_neg, windows_neg, "mask_neg")
    counts_pos = count_per_window(used_pos, windows_pos, "mask_pos")
    differs = counts_pos != counts_neg
    if bool(differs.any()):
        pos, neg = (int(counts.expand_as(differs)[differs][0]) for counts in (counts_pos, counts_neg))
        problem = f"the masks leave windows of {pos} positives and {neg} negatives"
        raise UserError(problem, "matched=True requires equal sizes", "mask equally many references per window")


def _others(B: int, device: torch.device) -> Int[Tensor, "B others"]:
    """Return the other queries of every query in cyclic order: i + 1, i + 2, …."""
    return (torch.arange(B, device=device).unsqueeze(-1) + torch.arange(1, B, device=device)) % B


def _take_others(used: Bool[Tensor, "*batch B B"]) -> Bool[Tensor, "*batch B others"]:
    """Return the entries of the other queries in cyclic order."""
    others = _others(used.shape[-1], used.device)
    return used.gather(-1, others.expand(*used.shape[:-2], -1, -1))


def _log_columns_neg(
    kernel: LogKernel, y: Float[Tensor, "*batch m D"], tau: float | Tensor, windows: Windows, used: Tensor | None
) -> Float[Tensor, "*batch B W s"]:
    """Compute log Σ_{l≠j} k(y_l, y_j) over the negatives l that query i uses in the window of j.

    Args:
        kernel: The log-kernel.
        y: Negatives [..., m, D].
        tau: Temperature.
        windows: The windows of the m negatives, or of the m − 1 others of each query in cyclic order.
        used: Which negatives each query uses, [..., B or 1, m]; all if None.

    Returns:
        [..., B or 1, W, s]
    """
    m = y.shape[-2]
    if used is None or windows.n == m:
        return log_columns(kernel, y, tau, windows, used)
    members = windows.split(_others(m, y.device))  # [m, W, s]
    log_k = kernel(y, y, tau)[..., members.unsqueeze(-1), members.unsqueeze(-2)]  # [..., m, W, s, s]
    unused = ~windows.split(_take_others(used)).unsqueeze(-1)
    own = torch.eye(windows.size, dtype=torch.bool, device=y.device)
    return logsumexp(log_k.masked_fill(unused | own, -math.inf), -2).squeeze(-2)


def _with_self_mask(mask: Tensor | None, self_mask: bool | Tensor, x: Tensor, y_neg: Tensor) -> Tensor | None:
    """Return the mask [..., B, m] of the negatives without each query's own column."""
    if self_mask is False:
        return mask
    B, m = x.shape[-2], y_neg.shape[-2]
    # True means that query i is negative i.
    if self_mask is True:
        if m != B:
            problem, fix = f"is True with {B} queries and {m} negatives", "pass an int64 tensor with their columns"
            raise UserError(problem, "True requires that y_neg[i] is x[i]", fix, field="self_mask")
        self_mask = torch.arange(B, device=x.device)
    # Columns are given, one per query.
    if not isinstance(self_mask, Tensor) or self_mask.dtype is not torch.long or self_mask.shape != (B,):
        value = f"{self_mask.dtype} {list(self_mask.shape)}" if isinstance(self_mask, Tensor) else f"{self_mask!r}"
        allowed = f"must be False, True or an int64 tensor [{B}]"
        raise UserError(f"is {value}", allowed, "pass the column of each query, −1 for none", field="self_mask")
    # Combine with the mask of the user.
    other = self_mask.to(x.device).unsqueeze(-1) != torch.arange(m, device=x.device)
    other = other.expand(*(1,) * (max(x.ndim, y_neg.ndim) - 2), B, m)
    return other if mask is None else broadcast_mask(mask, x, y_neg, "mask_neg") & other


def _check_own_columns(self_mask: bool | Tensor, m: int) -> None:
    """Require every column in `self_mask` to be that of a negative, or −1. Reads the values."""
    if isinstance(self_mask, Tensor) and bool(((self_mask < -1) | (self_mask >= m)).any()):
        problem = f"has columns from {int(self_mask.min())} to {int(self_mask.max())}"
        fix = "pass the column of each query, −1 for none"
        raise UserError(problem, f"must be between −1 and {m - 1}", fix, field="self_mask")
