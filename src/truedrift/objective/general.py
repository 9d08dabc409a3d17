"""The drift loss from its definition, step by step, for every option: the general path of `drift_loss`.

For scaled features and their distances (`feature_scale.py`),

    log k → γ of both sides → V_τ = γ⁺·Y⁺ − γ⁻·Y⁻, times masses → V = Σ_τ V_τ/√(mean V_τ² + ε) → mean ‖f − sg(f + V)‖².

The mean under the root is over the queries and coordinates of a group, or of all groups of a part that share it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.estimator import weighted_mean
from truedrift.centroids.matching import Windows
from truedrift.field.affinity import EPSILON, log_kernels, mean_square, sum_normalized
from truedrift.field.batch import batch_weights
from truedrift.field.matching import Columns, log_columns, window_layout
from truedrift.field.spec import FieldSpec
from truedrift.kernels.kernel import LogKernel, log_kernel, lowest_log_kernel, sharp_log_ratio
from truedrift.kernels.precision import to_widest
from truedrift.objective.feature_scale import ScaledFeatures, share_means
from truedrift.objective.terms import LossTerms

BLOCK_ELEMENTS = 1 << 20
"""Log-kernels per block of groups that share a scale, four megabytes of float32: more leaves the cache of a CPU."""


def general_loss(
    scaled: ScaledFeatures,
    temperatures: Sequence[float],
    spec: FieldSpec,
    kernel: str | LogKernel,
    share: Sequence[int] | None,
    generator: torch.Generator | None,
) -> LossTerms:
    """Compute the loss from its definition, step by step, for every option. Its target is computed without gradient."""
    with torch.no_grad():
        # d/τ within the range of the format: −∞ would be a mask.
        dtype = scaled.distances.dtype
        longest = min(-lowest_log_kernel(dtype) * min(temperatures), torch.finfo(dtype).max)
        scaled = replace(scaled, distances=scaled.distances.clamp_max(longest))
        # The field of every temperature; block by block if there may be many groups.
        blocks = [scaled] if share is None else _split_groups(scaled, len(temperatures))
        parts = [_compute_fields(block, temperatures, spec, kernel, generator) for block in blocks]
        fields = parts[0] if len(parts) == 1 else _join_fields(parts)
        V, log_scale = fields.V, fields.log_scale
        # The sum over temperatures of the fields divided by their RMS.
        if share is None:
            square = mean_square(V)
            total = sum_normalized(V)
        else:
            # The masses of all groups of a part relative to the same number.
            top = torch.cat([_maximum(part) for part in log_scale.split(list(share))])
            V, log_scale = V * (log_scale - top).exp()[..., None, None], top
            square = mean_square(V)
            total = (V * (share_means(square, share, keep=3) + EPSILON).rsqrt()).sum(-3)
    # f − sg(f + V), but V is not added to f first, which would round it to the digits of f.
    f = scaled.features.gen
    residual = f - f.detach() - total.to(f.dtype)
    return LossTerms(
        loss=residual.square().mean((-2, -1)),
        negatives=scaled.features.negatives,
        distances=scaled.distances,
        weight_neg=scaled.features.weight_neg,
        mean_square=square[..., 0, 0],
        largest_log_mass=log_scale,
        log_k=fields.log_k,
        pos=scaled.features.pos,
        unit=scaled.unit,
        fresh=scaled.features.fresh,
        columns=fields.columns,
        log_ratio=fields.log_ratio,
    )


class Fields(NamedTuple):
    """The fields of several groups, and what the report needs to compute their weights again."""

    V: Tensor
    """[..., T, n, D] with relative masses."""
    log_scale: Tensor
    """[..., T] logarithm of the mass that they are relative to."""
    log_k: Tensor | None
    """[..., T, n, columns] of a kernel other than Laplace's."""
    columns: Columns | None
    log_ratio: Tensor | None


def _compute_fields(
    scaled: ScaledFeatures,
    temperatures: Sequence[float],
    spec: FieldSpec,
    kernel: str | LogKernel,
    generator: torch.Generator | None,
) -> Fields:
    """Compute the field of every group at every temperature."""
    columns = scaled.features
    fixed = columns.gen.detach()  # forward-mode differentiation goes through no_grad
    # log k → weights of both sides.
    d, laplace = scaled.distances, kernel == "laplace"
    log_k = log_kernels(d, temperatures) if laplace else _custom_log_kernels(kernel, scaled, temperatures)
    sums = _columns(kernel, scaled, temperatures, spec) if spec.normalization == "symmetric" else None
    ratio = _sharp_log_ratios(kernel, log_k, temperatures) if spec.form == "potential" else None
    weights = batch_weights(
        log_k,
        columns.negatives,
        columns.weight_neg,
        spec,
        fresh=columns.fresh,
        columns=sums,
        log_ratio=ratio,
        generator=generator,
    )
    # Centroids and their difference.
    y_pos, y_neg = columns.pos, fixed if columns.neg is None else torch.cat((fixed, columns.neg), -2)
    if spec.form == "potential":  # from an origin in the data: the coefficients of y do not sum to 0
        origin = to_widest(fixed[..., :1, :])
        y_pos, y_neg = y_pos - origin, y_neg - origin
    V = _centroids(weights.gamma_pos, y_pos) - _centroids(weights.gamma_neg, y_neg)
    if scaled.unscaled:  # V may be ∞, and divided by its RMS NaN
        V = V.clamp(-torch.finfo(V.dtype).max, torch.finfo(V.dtype).max)
    if spec.form == "potential":
        V = V + weights.own() * (fixed - origin).unsqueeze(-3)
    V = weights.relative_mass() * V if spec.form == "product" else V
    return Fields(V, weights.log_scale(spec.form), None if laplace else log_k, sums, ratio)


def _maximum(log_scale: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch T"]:
    """Return the maximum of every temperature over all groups, in the shape of `log_scale`."""
    return log_scale.amax(tuple(range(log_scale.ndim - 1)), keepdim=True).expand_as(log_scale)


def _split_groups(scaled: ScaledFeatures, temperatures: int) -> list[ScaledFeatures]:
    """Split the first dimension into blocks, to limit the memory of log-kernels and weights."""
    P, d, f = len(scaled.distances), scaled.distances, scaled.features
    size = max(1, BLOCK_ELEMENTS * P // (temperatures * d.numel()))
    if size >= P:
        return [scaled]

    def split(side: Tensor | None, start: int) -> Tensor | None:
        return None if side is None else side[start : start + size]

    return [
        replace(
            scaled,
            features=replace(
                f,
                gen=f.gen[start : start + size],
                pos=f.pos[start : start + size],
                neg=split(f.neg, start),
                weight_neg=split(f.weight_neg, start),
            ),
            distances=d[start : start + size],
        )
        for start in range(0, P, size)
    ]


def _join_fields(parts: Sequence[Fields]) -> Fields:
    """Concatenate blocks along the first dimension."""

    def join(tensors: Sequence[Tensor | None]) -> Tensor | None:
        present = [tensor for tensor in tensors if tensor is not None]
        return torch.cat(present) if present else None

    columns = [part.columns for part in parts if part.columns is not None]
    pos = join([each.pos for each in columns])
    return Fields(
        V=torch.cat([part.V for part in parts]),
        log_scale=torch.cat([part.log_scale for part in parts]),
        log_k=join([part.log_k for part in parts]),
        columns=None if pos is None else Columns(join([each.neg for each in columns]), pos),
        log_ratio=join([part.log_ratio for part in parts]),
    )


def _centroids(gamma: Float[Tensor, "*batch T n m"], y: Float[Tensor, "*batch m D"]) -> Float[Tensor, "*batch T n D"]:
    """Compute γ y of every temperature in one product, without copies of y."""
    return weighted_mean(gamma.flatten(-3, -2), y).unflatten(-2, gamma.shape[-3:-1])


def _custom_log_kernels(kernel: str | LogKernel, scaled: ScaledFeatures, temperatures: Sequence[float]) -> Tensor:
    """Return log k [..., T, n, columns] of features on the scale of the distances that the paper's kernel uses."""
    columns = scaled.features.map(lambda f: f.detach() / scaled.unit)
    y = columns.concatenate()
    function = log_kernel(kernel)
    return torch.stack([function(columns.gen, y, tau) for tau in temperatures], -3)


def _columns(
    kernel: str | LogKernel, scaled: ScaledFeatures, temperatures: Sequence[float], spec: FieldSpec
) -> Columns:
    """Return the column sums [..., T, 1, W, s] among the references of every window."""
    columns, function = scaled.features.map(lambda f: f.detach() / scaled.unit), log_kernel(kernel)
    fresh = columns.neg if columns.fresh else None
    m = columns.gen.shape[-2] if fresh is None else fresh.shape[-2]
    windows_neg, windows_pos = window_layout(m, columns.pos.shape[-2], spec, own=fresh is None)

    def sums(y: Tensor, windows: Windows) -> Tensor:
        return torch.stack([log_columns(function, y, tau, windows) for tau in temperatures], -4)

    return Columns(None if fresh is None else sums(fresh, windows_neg), sums(columns.pos, windows_pos))


def _sharp_log_ratios(kernel: str | LogKernel, log_k: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Return log k#/k [..., T, n, columns]."""
    tau = torch.tensor(temperatures, dtype=log_k.dtype).view(-1, 1, 1).to(log_k.device, non_blocking=True)
    return sharp_log_ratio(kernel, log_k, tau)
