"""The drift loss of standardized, normalized features in Gram space: the same numbers as the general path, faster.

With unit features F = [gen | neg | pos] every quantity of the loss follows from inner products:

    d² = 2 − 2 FFᵀ,   V_τ = C_τ F,   ⟨V_σ, V_τ⟩ = C_σ FFᵀ C_τᵀ = −½ C_σ d² C_τᵀ   (rows of C sum to 0),

so the RMS of each field and the loss are entries of a T × T matrix a group, and V_τ is never formed. The gradient with
respect to a feature before its normalization is V = Σ_τ V_τ/rms_τ less its projection on f, scaled. With
C = Σ_τ C_τ/rms_τ the projection is f_i·V_i = −½ Σ_j C_ij d²_ij, and f_i is a column of F itself, so the projection is
taken from the diagonal of C and the gradient is one product. That makes two products with D-dimensional operands in
all, whatever the number of temperatures. F is not formed either: the norms of Z = (f − μ)/σ are folded into FFᵀ and C.

**Digits.** d² = 2 − 2 f·f′ cancels when f is near f′. In float32 it is right to about 2e-7, hence a log-weight d/τ to
1e-7/(dτ). Where a pair is so near that this matters (`NEAR`) the products are taken in float64, at twice the cost. On
the CPU the distances are looked at to decide; elsewhere looking would synchronize, so float64 is always taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from truedrift.axes import Tensor
from truedrift.field.sides import Weighting
from truedrift.field.temperatures import EPSILON
from truedrift.kernels.distance import wide
from truedrift.objective.feature_scale import SMALLEST_DEVIATION, SMALLEST_NORM, Features
from truedrift.objective.grouped import Outcome, largest_log_mass, weigh

BLOCK_ELEMENTS = 1 << 20
"""Feature elements in a block of groups on the CPU, four megabytes of float32: bounds memory, stays in the cache."""

NEAR = 1e-3
"""Pairs nearer than NEAR/τ are taken from float64 products: a float32 one leaves more than 1e-4 in their log-weight."""


def gram_loss(
    features: Features,
    temperatures: Sequence[float],
    weighting: Weighting,
    generator: torch.Generator | None = None,
) -> Outcome:
    """The outcome of the general path with standardize-l2, for features in one dtype with equal leading dimensions."""
    leading = features.gen.shape[:-2]
    groups = _flat(features)
    with torch.no_grad():
        parts = [_block(block, temperatures, weighting, generator) for block in _blocks(groups)]
        whole = parts[0] if len(parts) == 1 else Block(*map(torch.cat, zip(*parts, strict=True)))
        whole = Block(*(part.unflatten(0, leading) if leading else part.squeeze(0) for part in whole))
    loss = KnownGradient.apply(features.gen, whole.loss, whole.gradient)
    return Outcome(
        loss=loss,
        negatives=features.negatives,
        distances=whole.distances,
        weight_neg=features.weight_neg,
        mean_square=whole.mean_square,
        largest_log_mass=whole.largest_log_mass,
    )


class KnownGradient(torch.autograd.Function):
    """A loss [...] whose gradient with respect to gen [..., n, D] is known."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gen: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def setup_context(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad_loss: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad_loss[..., None, None] * gradient, None, None


class Block(NamedTuple):
    """The results of some groups, one row a group."""

    loss: Tensor
    gradient: Tensor
    distances: Tensor
    mean_square: Tensor
    largest_log_mass: Tensor


def _flat(features: Features) -> Features:
    """Leading dimensions as one: [G, rows, D]."""

    def flat(f: Tensor) -> Tensor:
        return f.detach().reshape(-1, *f.shape[-2:])

    weight = features.weight_neg
    return Features(
        flat(features.gen),
        flat(features.pos),
        None if features.neg is None else flat(features.neg),
        None if weight is None else weight.reshape(-1, weight.shape[-1]),
    )


def _blocks(groups: Features) -> list[Features]:
    G, _, D = groups.gen.shape
    size = G
    if groups.gen.device.type == "cpu" and not torch.compiler.is_compiling():
        size = max(1, BLOCK_ELEMENTS // ((groups.negatives + groups.pos.shape[-2]) * D))
    if size >= G:
        return [groups]
    sides = (groups.gen, groups.pos, groups.neg, groups.weight_neg)
    split = [[None] * -(-G // size) if side is None else side.split(size) for side in sides]
    return [Features(*block) for block in zip(*split, strict=True)]


def _block(
    groups: Features, temperatures: Sequence[float], weighting: Weighting, generator: torch.Generator | None
) -> Block:
    G, n, D = groups.gen.shape
    Z, deviation = _standardized(groups)
    squared, inverse_norm = _squared_distances(Z, n, near=NEAR / min(temperatures))
    d = squared[:, :n].sqrt()
    both = weigh(d, groups.negatives, groups.weight_neg, temperatures, weighting, generator=generator)
    C = both.coefficients(weighting.form).view(G, len(temperatures), -1)  # [G, T, n × columns]
    products = _products(C, squared, n * D)
    square = products.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    inverse_rms = (square + EPSILON).rsqrt().unsqueeze(-1)  # [G, T, 1]
    loss = (products * inverse_rms * inverse_rms.mT).sum((-2, -1))
    total = (C * inverse_rms).sum(-2).view(G, n, -1)  # Σ_τ C_τ/rms_τ
    gradient = _gradient(total, squared, Z, inverse_norm).div_(deviation)
    return Block(loss, gradient, d, square, largest_log_mass(both, weighting.form))


def _standardized(groups: Features) -> tuple[Tensor, Tensor]:
    """Z = (f − μ)/σ over columns [gen | neg | pos], and σ [G, 1, D], with μ and σ over gen ∪ pos."""
    if groups.neg is None:
        Z = torch.cat((groups.gen, groups.pos), -2)
        counted = Z.shape[-2]
        Z -= Z.mean(-2, keepdim=True)
        sum_of_squares = (Z * Z).sum(-2, keepdim=True)
    else:
        counted = groups.gen.shape[-2] + groups.pos.shape[-2]
        Z = torch.cat((groups.gen, groups.neg, groups.pos), -2)
        Z -= (groups.gen.sum(-2, keepdim=True) + groups.pos.sum(-2, keepdim=True)) / counted
        gen, pos = Z[:, : groups.gen.shape[-2]], Z[:, groups.negatives :]
        sum_of_squares = (gen * gen).sum(-2, keepdim=True) + (pos * pos).sum(-2, keepdim=True)
    deviation = (sum_of_squares / (counted - 1)).sqrt().clamp_min(SMALLEST_DEVIATION)
    Z /= deviation
    return Z, deviation


def _squared_distances(Z: Tensor, n: int, near: float) -> tuple[Tensor, Tensor]:
    """d² [G, columns, columns] of f = z/‖z‖, and 1/‖z‖ [G, columns], with the digits that weights at `near` need."""
    if _may_look_at(Z):
        squared, inverse_norm = _unit_distances(Z)
        diagonal = squared.diagonal(dim1=-2, dim2=-1)
        diagonal.fill_(4)  # the largest that a distance can be, so that the diagonal is not the nearest
        nearest = float(squared[:, :n].amin())
        diagonal.zero_()
        if nearest >= near * near:
            return squared, inverse_norm
    squared, inverse_norm = _unit_distances(wide(Z))
    squared.diagonal(dim1=-2, dim2=-1).zero_()
    return squared.to(Z.dtype), inverse_norm.to(Z.dtype)


def _may_look_at(Z: Tensor) -> bool:
    """Whether reading a value costs nothing: on the CPU, outside of compilation and of function transforms."""
    if Z.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(Z)


def _unit_distances(Z: Tensor) -> tuple[Tensor, Tensor]:
    """‖f‖² + ‖f′‖² − 2 f·f′ where ‖f‖ is 1, or 0 for z = 0, which has no direction; the diagonal is left as rounded."""
    product = torch.bmm(Z, Z.mT)
    square = product.diagonal(dim1=-2, dim2=-1)
    directed = square > SMALLEST_NORM**2
    inverse_norm = torch.where(directed, square.rsqrt(), 0)
    length = directed.to(Z.dtype)
    product *= (-2 * inverse_norm).unsqueeze(-1)
    product *= inverse_norm.unsqueeze(-2)
    product += length.unsqueeze(-1)
    product += length.unsqueeze(-2)
    return product.clamp_min_(0), inverse_norm


def _products(C: Tensor, squared: Tensor, elements: int) -> Tensor:
    """mean V_σ·V_τ = −½ C_σ d² C_τᵀ summed over queries, over the number of elements of a field, [G, T, T]."""
    through = torch.bmm(C.view(C.shape[0], -1, squared.shape[-1]), squared).view_as(C)
    return torch.bmm(through, C.mT).mul_(-0.5 / elements)


def _gradient(C: Tensor, squared: Tensor, Z: Tensor, inverse_norm: Tensor) -> Tensor:
    """∂loss/∂z = −2/(nD) (V − f (f·V)) / ‖z‖ for V = C·F; the projection −½ Σ_j C_ij d²_ij leaves the diagonal of C."""
    n, D = C.shape[-2], Z.shape[-1]
    C.diagonal(dim1=-2, dim2=-1).add_((C * squared[:, :n]).sum(-1), alpha=0.5)
    C *= (inverse_norm[:, :n] * (-2 / (n * D))).unsqueeze(-1)
    C *= inverse_norm.unsqueeze(-2)
    return torch.bmm(C, Z)
