"""The drift loss of standardized, normalized features in Gram space: the same numbers as the general path, faster.

With unit features F = [gen | neg | pos] every quantity of the loss follows from inner products:

    d² = 2 − 2 FFᵀ,   V_τ = C_τ F,   ⟨V_σ, V_τ⟩ = C_σ FFᵀ C_τᵀ = −½ C_σ d² C_τᵀ   (rows of C sum to 0),

so the RMS of each field and the loss are entries of a T × T matrix a group, and V_τ is never formed. The gradient with
respect to the features is one product of Σ_τ C_τ/rms_τ with F, less its projection on f (from the normalization):
two products with D-dimensional operands in all, whatever the number of temperatures. F itself is not formed either:
the norms of Z = (f − μ)/σ are folded into FFᵀ and into C.

Distances that enter a kernel are taken from products in float64, as in `kernels.distance`; the rest is float32. Groups
are processed in blocks that fit the cache, which also bounds memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from truedrift.axes import Tensor
from truedrift.field.sides import Weighting
from truedrift.field.temperatures import EPSILON
from truedrift.kernels.distance import wide
from truedrift.objective.feature_scale import SMALLEST_DEVIATION, Features
from truedrift.objective.grouped import Outcome, forces, weigh

BLOCK_ELEMENTS = 1 << 19
"""Feature elements a block of groups on the CPU: two megabytes of float32."""


def gram_loss(
    features: Features, temperatures: Sequence[float], weighting: Weighting, generator: torch.Generator | None = None
) -> Outcome:
    """The outcome of the general path with standardize-l2, for features in one dtype with equal leading dimensions."""
    leading = features.gen.shape[:-2]
    groups = _flat(features)
    with torch.no_grad():
        parts = [_block(block, temperatures, weighting, generator) for block in _blocks(groups)]
        whole = parts[0] if len(parts) == 1 else Block(*map(torch.cat, zip(*parts, strict=True)))
        whole = Block(*(part.unflatten(0, leading) if leading else part.squeeze(0) for part in whole))
    loss = KnownGradient.apply(features.gen, whole.loss, whole.gradient)
    return Outcome(loss, features.negatives, whole.distances, features.weight_neg, whole.log_force)


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
        (gradient,) = ctx.saved_tensors
        return grad_loss[..., None, None] * gradient, None, None


class Block(NamedTuple):
    """The results of some groups, one row a group."""

    loss: Tensor
    gradient: Tensor
    distances: Tensor
    log_force: Tensor


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
    G, n, D = groups.gen.shape
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
    squared, inverse_norm = _squared_distances(Z, n)
    d = squared[:, :n].sqrt()
    both = weigh(d, n, groups.negatives, groups.weight_neg, temperatures, weighting, generator)
    C = both.coefficients(weighting.form)  # [G, T, n, columns]
    products = _products(C, squared) / (n * D)  # [G, T, T]: mean over n × D of V_σ · V_τ
    square = products.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    inverse_rms = (square + EPSILON).rsqrt().unsqueeze(-2)  # [G, 1, T]
    loss = (inverse_rms @ products @ inverse_rms.mT).flatten()
    total = (inverse_rms @ C.flatten(-2)).view(G, n, -1)  # Σ_τ C_τ/rms_τ
    gradient = _gradient(total, Z, inverse_norm, deviation)
    return Block(loss, gradient, d, forces(square, both, weighting.form))


def _standardized(groups: Features) -> tuple[Tensor, Tensor]:
    """Z = (f − μ)/σ over columns [gen | neg | pos], and σ [G, 1, D], with μ and σ over gen ∪ pos."""
    if groups.neg is None:
        Z = torch.cat((groups.gen, groups.pos), -2)
        Z -= Z.mean(-2, keepdim=True)
        sum_of_squares = Z.square().sum(-2, keepdim=True)
        counted = Z.shape[-2]
    else:
        counted = groups.gen.shape[-2] + groups.pos.shape[-2]
        Z = torch.cat((groups.gen, groups.neg, groups.pos), -2)
        Z -= (groups.gen.sum(-2, keepdim=True) + groups.pos.sum(-2, keepdim=True)) / counted
        squares = Z.square()
        sum_of_squares = squares.sum(-2, keepdim=True)
        sum_of_squares -= squares[:, groups.gen.shape[-2] : groups.negatives].sum(-2, keepdim=True)
    deviation = (sum_of_squares / (counted - 1)).sqrt().clamp_min(SMALLEST_DEVIATION)
    Z /= deviation
    return Z, deviation


def _squared_distances(Z: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """d² = 2 − 2 z·z′/(‖z‖‖z′‖) between all columns, and 1/‖z‖ [G, columns]; the rows of queries from float64 products."""
    precise = wide(Z)
    inverse_norm = torch.linalg.vector_norm(precise, dim=-1).clamp_min(1e-12).reciprocal()
    rows = _unit_distances(precise[:, :n], precise, inverse_norm[:, :n], inverse_norm).to(Z.dtype)
    inverse_norm = inverse_norm.to(Z.dtype)
    references = Z[:, n:]
    corner = _unit_distances(references, references, inverse_norm[:, n:], inverse_norm[:, n:])
    squared = torch.cat((rows, torch.cat((rows[:, :, n:].mT, corner), -1)), -2)
    squared.diagonal(dim1=-2, dim2=-1).zero_()
    return squared, inverse_norm


def _unit_distances(a: Tensor, b: Tensor, inverse_norm_a: Tensor, inverse_norm_b: Tensor) -> Tensor:
    product = a @ b.mT
    product *= -2 * inverse_norm_a.unsqueeze(-1)
    product *= inverse_norm_b.unsqueeze(-2)
    return product.add_(2).clamp_min_(0)


def _products(C: Tensor, squared: Tensor) -> Tensor:
    """−½ C_σ d² C_τᵀ summed over queries, [G, T, T]."""
    through = (C.flatten(1, 2) @ squared).view_as(C)
    return -0.5 * (through.flatten(-2) @ C.flatten(-2).mT)


def _gradient(total: Tensor, Z: Tensor, inverse_norm: Tensor, deviation: Tensor) -> Tensor:
    """∂loss/∂gen = −2/(nD) (V − f (f·V)) / (‖z‖ σ) with V = total·F and f = z/‖z‖."""
    n, D = total.shape[-2], Z.shape[-1]
    scale = inverse_norm[:, :n].unsqueeze(-1)
    V = (total * inverse_norm.unsqueeze(-2)) @ Z
    z = Z[:, :n]
    along = (V * z).sum(-1, keepdim=True) * scale.square()
    V = torch.addcmul(V, z, along, value=-1)
    V *= scale * (-2 / (n * D))
    V /= deviation
    return V
