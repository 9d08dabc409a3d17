"""The drift loss of standardized, normalized features from their inner products: the Gram path of `drift_loss`.

It computes the same loss and gradient as the general path, several times faster.

With unit features F = [gen | neg | pos] every quantity of the loss follows from inner products:

    d² = 2 − 2 FFᵀ,   V_τ = C_τ F,   ⟨V_σ, V_τ⟩ = C_σ FFᵀ C_τᵀ = −½ C_σ d² C_τᵀ   (rows of C sum to 0),

so the RMS of each field and the loss are entries of one T × T matrix per group, and V_τ is never formed. The gradient
with respect to a feature before its normalization is V = Σ_τ V_τ/rms_τ minus its projection on f, scaled. With
C = Σ_τ C_τ/rms_τ the projection is f_i·V_i = −½ Σ_j C_ij d²_ij, and f_i is a column of F itself, so the projection is
subtracted from the diagonal of C and the gradient is one product. In total there are two products with D-dimensional
operands, for any number of temperatures.

With many more positives than queries, the products among the positives would be most of the work. Then only the rows of
the queries are computed, and V_τ = C_τ F is formed: T + 1 products whose cost is linear in n. `_forms_field` counts the
operations of both variants.

**Precision.** d² = 2 − 2 f·f′ cancels when f is near f′. In float32 it is accurate to about 2e-7, and a log-weight d/τ
to 1e-7/(dτ). If a pair is so near that this matters (`NEAR`), the products are computed in float64, at twice the cost.
On the CPU the distances are read to decide. On other devices reading them would synchronize, so float64 is always used.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch.autograd.function import FunctionCtx, once_differentiable

from truedrift.axes import Tensor
from truedrift.centroids.matching import Windows
from truedrift.field.affinity import EPSILON, log_kernels
from truedrift.field.batch import batch_weights
from truedrift.field.matching import Columns, sum_columns, window_layout
from truedrift.field.spec import FieldSpec
from truedrift.kernels.precision import to_widest
from truedrift.objective.feature_scale import (
    LARGEST,
    SMALLEST_DEVIATION,
    SMALLEST_NORM,
    Features,
    limit_sum,
    standardize,
)
from truedrift.objective.terms import LossTerms, positive_blocks

BLOCK_ELEMENTS = 1 << 19
"""Feature elements per block of groups on the CPU, two megabytes of float32: bounds memory and fits in the cache."""

LARGEST_SHARE, PASSES_OF_FIELD = 0.7, 8
"""V is formed if that takes less than this share of the operations; passes over all features that it takes besides."""

NEAR = 3e-3
"""Pairs nearer than NEAR/τ need float64 products: with float32 the error of their log-weight exceeds 3e-5."""


def gram_loss(
    features: Features,
    temperatures: Sequence[float],
    spec: FieldSpec,
    generator: torch.Generator | None = None,
) -> LossTerms:
    """Compute the loss with standardize-l2, for features in one dtype with equal leading dimensions."""
    leading = features.gen.shape[:-2]
    groups = _flatten_groups(features)
    with torch.no_grad():
        # Loss and gradient, block by block.
        gradient = torch.empty_like(groups.gen)
        parts = [
            _compute_block(block, out, temperatures, spec, generator) for block, out in _split_blocks(groups, gradient)
        ]
        whole = _join_blocks(parts, leading)
    # Attach the gradient to the loss.
    loss = KnownGradient.apply(features.gen, whole.loss, gradient.view_as(features.gen))
    return LossTerms(
        loss=loss,
        negatives=features.negatives,
        distances=whole.distances,
        weight_neg=features.weight_neg,
        mean_square=whole.mean_square,
        largest_log_mass=whole.largest_log_mass,
        squared_pos=whole.squared_pos,
        fresh=features.fresh,
        columns=None if whole.columns_pos is None else Columns(whole.columns_neg, whole.columns_pos),
    )


class KnownGradient(torch.autograd.Function):
    """A loss [...] whose gradient with respect to gen [..., n, D] is already computed; differentiable once."""

    @staticmethod
    def forward(ctx: FunctionCtx, gen: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_loss: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad_loss.unsqueeze(-1).unsqueeze(-1) * gradient, None, None


class GroupBlock(NamedTuple):
    """The results of several groups, one row per group."""

    loss: Tensor
    distances: Tensor
    mean_square: Tensor
    largest_log_mass: Tensor
    squared_pos: Tensor
    columns_neg: Tensor | None
    columns_pos: Tensor | None


def _join_blocks(parts: Sequence[GroupBlock], leading: torch.Size) -> GroupBlock:
    """Concatenate blocks along the groups and restore the leading dimensions."""
    joined = []
    for field in zip(*parts, strict=True):
        whole = field[0] if len(parts) == 1 or field[0] is None else torch.cat(field)
        joined.append(None if whole is None else whole.view(leading + whole.shape[1:]))
    return GroupBlock(*joined)  # type: ignore[arg-type]  # None only where a field may be None


def _flatten_groups(features: Features) -> Features:
    """Merge the leading dimensions into one: [G, rows, D]."""
    leading = features.gen.ndim - 2

    def flatten(side: Tensor) -> Tensor:
        return side.detach().reshape(-1, *side.shape[leading:])

    neg, weight = (None if side is None else flatten(side) for side in (features.neg, features.weight_neg))
    return Features(flatten(features.gen), flatten(features.pos), neg, weight, features.fresh)


def _split_blocks(groups: Features, gradient: Tensor) -> list[tuple[Features, Tensor]]:
    """Split the groups into blocks, each with the memory for its gradient."""
    G, _, D = groups.gen.shape
    size = G
    if groups.gen.device.type == "cpu" and not torch.compiler.is_compiling():
        size = max(1, BLOCK_ELEMENTS // ((groups.negatives + groups.pos.shape[-2]) * D))
    if size >= G:
        return [(groups, gradient)]
    sides = (groups.gen, groups.pos, groups.neg, groups.weight_neg)
    split = [[None] * -(-G // size) if side is None else side.split(size) for side in sides]
    blocks = [Features(*block, fresh=groups.fresh) for block in zip(*split, strict=True)]  # type: ignore[misc]
    return list(zip(blocks, gradient.split(size), strict=True))


def _compute_block(
    groups: Features,
    gradient: Tensor,
    temperatures: Sequence[float],
    spec: FieldSpec,
    generator: torch.Generator | None,
) -> GroupBlock:
    """Compute the results of a block of groups and write ∂loss/∂gen to `gradient`."""
    # Unit features and their squared distances.
    G, n, D = groups.gen.shape
    z, inverse_deviation = _standardize(groups, gradient)
    forms_field = _forms_field(groups, len(temperatures), spec)
    directions = _directions_op if torch.compiler.is_compiling() else _directions
    squared, inverse_norm = directions(z, n, NEAR / min(temperatures), not forms_field)
    d = squared[:, :n].clone().sqrt_()
    # log k → weights of both sides → coefficients C of every temperature.
    log_k = log_kernels(d, temperatures)
    columns = _columns(squared, groups, temperatures, spec) if spec.normalization == "symmetric" else None
    weights = batch_weights(
        log_k,
        groups.negatives,
        groups.weight_neg,
        spec,
        fresh=groups.fresh,
        columns=columns,
        finite_kernel=True,
        generator=generator,
    )
    C = weights.coefficients(spec.form).view(G, len(temperatures), -1)  # [G, T, n × columns]
    log_mass = weights.log_scale(spec.form)
    del weights
    # ⟨V_σ, V_τ⟩ → RMS of every field and loss.
    if forms_field:
        V = torch.bmm(C.view(G, -1, z.shape[-2]) * inverse_norm.unsqueeze(-2), z).view(G, len(temperatures), -1)
        products = torch.bmm(V, V.mT).div_(n * D)
    else:
        products = _field_products(C, squared, n * D)
    square = products.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    inverse_rms = (square + EPSILON).rsqrt().unsqueeze(-1)  # [G, T, 1]
    loss = torch.bmm(inverse_rms.mT, torch.bmm(products, inverse_rms)).view(G)
    # The gradient with respect to gen.
    if forms_field:
        f, inverse = z[:, :n] * inverse_norm[:, :n, None], inverse_norm[:, :n, None]
        total = torch.bmm(inverse_rms.mT, V).view(G, n, D)  # Σ_τ V_τ/rms_τ
        torch.mul(total - f * (f * total).sum(-1, keepdim=True), inverse * (-2 / (n * D)), out=gradient)
        squared_pos = _squared_in_blocks(z[:, groups.negatives :], inverse_norm[:, groups.negatives :], n)
    else:
        total = C.mul_(inverse_rms).sum(1).view(G, n, -1)  # Σ_τ C_τ/rms_τ
        M = _gradient_coefficients(total, squared, inverse_norm)
        gradient.baddbmm_(M, z, beta=0, alpha=-2 / (n * D))
        squared_pos = _diagonal_blocks(squared[:, groups.negatives :, groups.negatives :], n)
    gradient *= inverse_deviation
    return GroupBlock(loss, d, square, log_mass, squared_pos, *(columns or (None, None)))


def _forms_field(groups: Features, temperatures: int, spec: FieldSpec) -> bool:
    """Return whether forming V takes far fewer operations than products of all columns; "symmetric" needs these."""
    g, n, D, T = groups.gen.shape[-2], groups.pos.shape[-2], groups.gen.shape[-1], temperatures
    columns, (K, b) = groups.negatives + n, positive_blocks(g, n)
    all_products = columns * columns * (D + T * g) + g * columns * D
    rows_and_field = columns * D * (g + T * g + PASSES_OF_FIELD) + K * b * b * D
    return spec.normalization != "symmetric" and rows_and_field < LARGEST_SHARE * all_products


def _squared_in_blocks(z: Tensor, inverse_norm: Tensor, g: int) -> Tensor:
    """Return the d² [G, K, b, b] among the positives of every block, from z and 1/‖z‖ of the positives."""
    K, b = positive_blocks(g, z.shape[-2])
    f = (z * inverse_norm.unsqueeze(-1))[:, : K * b].unflatten(-2, (K, b))
    square = f.square().sum(-1)
    squared = (square.unsqueeze(-1) + square.unsqueeze(-2)).sub_(f @ f.mT, alpha=2).clamp_min_(0)
    squared.diagonal(dim1=-2, dim2=-1).zero_()
    return squared


def _diagonal_blocks(squared: Tensor, g: int) -> Tensor:
    """Return the d² [G, K, b, b] among the positives of every block, from those among all positives [G, n, n]."""
    K, b = positive_blocks(g, squared.shape[-1])
    if K == 1:
        return squared.unsqueeze(1)
    blocks = squared[:, : K * b, : K * b].unflatten(-1, (K, b)).unflatten(-3, (K, b))
    return blocks.diagonal(dim1=1, dim2=3).movedim(-1, 1)


def _columns(squared: Tensor, groups: Features, temperatures: Sequence[float], spec: FieldSpec) -> Columns:
    """Return the column sums [G, T, 1, W, s] among the references of every window."""
    n, negatives = groups.gen.shape[-2], groups.negatives
    first, m = (n, negatives - n) if groups.fresh else (0, n)
    windows_neg, windows_pos = window_layout(m, groups.pos.shape[-2], spec, own=not groups.fresh)

    def sums(windows: Windows, start: int) -> Tensor:
        members = start + windows.members(squared.device)
        d = squared[:, members.unsqueeze(-1), members.unsqueeze(-2)].sqrt()
        return sum_columns(log_kernels(d.flatten(1, 2), temperatures).unflatten(2, members.shape))

    return Columns(sums(windows_neg, first) if groups.fresh else None, sums(windows_pos, negatives))


def _standardize(groups: Features, scratch: Tensor) -> tuple[Tensor, Tensor]:
    """Return z = (f − μ)/σ over columns [gen | neg | pos], and 1/σ [G, 1, D]: `standardize`, in place if faster."""
    if torch.compiler.is_compiling() or groups.neg is not None or groups.pos.shape != scratch.shape:
        standardized, deviation = standardize(groups)
        return standardized.concatenate(), deviation.reciprocal()
    G, n, D = scratch.shape
    z, origin = scratch.new_empty(G, 2 * n, D), groups.pos[:, :1].clamp(-LARGEST, LARGEST)
    gen, pos = z.chunk(2, -2)
    torch.sub(groups.gen, origin, out=gen)
    torch.sub(groups.pos, origin, out=pos)
    z.sub_(limit_sum(z.sum(-2, keepdim=True)), alpha=1 / (2 * n))
    # The squares use the memory of the gradient: new memory would be slower.
    squares = torch.mul(gen, gen, out=scratch).addcmul_(pos, pos).sum(-2, keepdim=True)
    inverse_deviation = squares.div_(2 * n - 1).clamp_min_(SMALLEST_DEVIATION**2).rsqrt_()
    z *= inverse_deviation
    return z, inverse_deviation


def _directions(z: Tensor, n: int, near: float, whole: bool) -> tuple[Tensor, Tensor]:
    """Return d² of f = z/‖z‖ and 1/‖z‖ [G, columns], in float64 if pairs are within `near`.

    d² has all rows [G, columns, columns], or, if not `whole`, the rows of the n queries.
    """
    expand = _expand if whole else partial(_expand_rows, n=n)
    if z.device.type == "cpu":
        squared, inverse_norm = expand(z)
        queries = squared[:, :n]
        if int((queries < near * near).count_nonzero()) == queries.shape[0] * n:  # each is near only itself
            return squared, inverse_norm
    squared, inverse_norm = expand(to_widest(z))
    return squared.to(z.dtype), inverse_norm.to(z.dtype)


def _expand(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return f·f + f′·f′ − 2 f·f′ and 1/‖z‖, with f = 0 and 1/‖z‖ = 0 for z = 0."""
    product = torch.bmm(z, z.mT)
    square = product.diagonal(dim1=-2, dim2=-1)
    inverse_norm = _inverse_norm(square)
    product.mul_(inverse_norm.unsqueeze(-1)).mul_(inverse_norm.unsqueeze(-2))
    # `square` is now f·f: 1 or 0, rounded like the other products, so that d² of a feature and itself is 0.
    return (square.unsqueeze(-1) + square.unsqueeze(-2)).sub_(product, alpha=2).clamp_min_(0), inverse_norm


def _inverse_norm(square: Tensor) -> Tensor:
    """Return 1/‖z‖ from ‖z‖², and 0 for z = 0."""
    return torch.threshold(square, SMALLEST_NORM**2, math.inf).rsqrt_()


def _expand_rows(z: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the first n rows of `_expand`; d² of a query and itself is 0 by identity."""
    product, square = torch.bmm(z[:, :n], z.mT), z.square().sum(-1)
    inverse_norm = _inverse_norm(square)
    product.mul_(inverse_norm[:, :n].unsqueeze(-1)).mul_(inverse_norm.unsqueeze(-2))
    square = (inverse_norm > 0).to(z.dtype)  # f·f
    squared = (square[:, :n].unsqueeze(-1) + square.unsqueeze(-2)).sub_(product, alpha=2).clamp_min_(0)
    squared.diagonal(dim1=-2, dim2=-1).zero_()
    return squared, inverse_norm


@torch.library.custom_op("truedrift::directions", mutates_args=())
def _directions_op(z: Tensor, n: int, near: float, whole: bool) -> tuple[Tensor, Tensor]:
    """`_directions` as one operator of a compiled graph, which cannot read values."""
    return _directions(z, n, near, whole)


@_directions_op.register_fake
def _(z: Tensor, n: int, near: float, whole: bool) -> tuple[Tensor, Tensor]:
    G, columns, _ = z.shape
    return z.new_empty(G, columns if whole else n, columns), z.new_empty(G, columns)


def _field_products(C: Tensor, squared: Tensor, elements: int) -> Tensor:
    """Return mean V_σ·V_τ [G, T, T]: −½ C_σ d² C_τᵀ summed over queries, divided by the elements of a field."""
    through = torch.bmm(C.view(C.shape[0], -1, squared.shape[-1]), squared).view_as(C)
    return torch.bmm(through, C.mT).mul_(-0.5 / elements)


def _gradient_coefficients(C: Tensor, squared: Tensor, inverse_norm: Tensor) -> Tensor:
    """Return M with M z = (V − f (f·V)) / ‖z‖ for V = C·F, so that ∂loss/∂z = −2/(nD) M z. C is overwritten.

    The projection f_i·V_i = −½ Σ_j C_ij d²_ij is subtracted from the diagonal of C.
    """
    n = C.shape[-2]
    C.diagonal(dim1=-2, dim2=-1).add_((C * squared[:, :n]).sum(-1), alpha=0.5)
    return C.mul_(inverse_norm[:, :n].unsqueeze(-1)).mul_(inverse_norm.unsqueeze(-2))
