"""log-kernels of a training batch → γ of both sides, for every group at every temperature.

The columns are [gen | neg | pos]. The generated features are the queries and, with their own columns masked, negatives
of each other. Unconditional negatives are added with weights. Fresh negatives replace the generated features, which
then have no weight.
"""

import math
from dataclasses import replace

import torch

from truedrift.axes import Float, Tensor
from truedrift.field.affinity import SideWeights, side_weights
from truedrift.field.matching import Columns, matched_side_weights
from truedrift.field.spec import FieldSpec


def batch_weights(
    log_k: Float[Tensor, "*batch T n columns"],
    negatives: int,
    weight_neg: Tensor | None,
    spec: FieldSpec,
    *,
    fresh: bool = False,
    columns: Columns | None = None,
    log_ratio: Tensor | None = None,
    finite_kernel: bool = False,
    complete: bool = False,
    generator: torch.Generator | None = None,
) -> SideWeights:
    """Compute the weights of both sides of a training batch, for every group at every temperature.

    A query without negatives is its own centroid, T⁻ = f. Only a single generated feature can be without negatives.

    Args:
        log_k: Log-kernels over columns [gen | neg | pos]. The own columns are masked in place.
        negatives: The number of columns before the positives.
        weight_neg: Weights [..., u] of the unconditional negatives, if there are any.
        spec: Normalization, form and estimators.
        fresh: Whether the columns `neg` are the only negatives; the generated features then have no weight.
        columns: Column sums among the references, for "symmetric".
        log_ratio: log k#/k in the shape of `log_k`, for the form "potential".
        finite_kernel: Set to True if every entry of log k is finite; this is faster.
        complete: Whether statistics and masses are needed; without windows they are always available.
        generator: Random numbers for estimators that draw.

    Returns:
        γ± and masses [..., T, n, ·].
    """
    n = log_k.shape[-2]
    # Fresh negatives: only the columns after the generated features are references.
    if fresh:
        log_k = log_k[..., n:]
        if spec.per_side:
            ratio = None if log_ratio is None else log_ratio[..., n:]
            weights = matched_side_weights(
                log_k, negatives - n, spec, columns=columns, log_ratio=ratio, complete=complete, generator=generator
            )
        else:
            weights = side_weights(log_k, negatives - n, spec, assume_nonempty=finite_kernel, generator=generator)
        return weights.with_empty_columns(n)
    # Otherwise the other generated features are negatives: mask the own columns.
    log_k.diagonal(dim1=-2, dim2=-1).fill_(-math.inf)
    if spec.per_side:
        weights = matched_side_weights(
            log_k,
            negatives,
            spec,
            own=True,
            columns=columns,
            log_ratio=log_ratio,
            complete=complete,
            generator=generator,
        )
        return weights if n > 1 else _with_own_centroid(weights)
    log_weight = None
    if weight_neg is not None:
        log_weight = torch.nn.functional.pad(weight_neg.log(), (n, 0))[..., None, None, :]
    nonempty = finite_kernel and n > 1
    weights = side_weights(
        log_k, negatives, spec, log_weight_neg=log_weight, assume_nonempty=nonempty, generator=generator
    )
    return weights if n > 1 else _with_own_centroid(weights)


def _with_own_centroid(weights: SideWeights) -> SideWeights:
    """Set γ⁻ = 1 on the own column, the first one, of a single query whose negatives have no weight."""
    alone = (weights.gamma_neg == 0).all(-1, keepdim=True)
    own = torch.nn.functional.pad(alone.to(weights.gamma.dtype), (0, weights.gamma.shape[-1] - 1))
    return replace(weights, gamma=weights.gamma + own)
