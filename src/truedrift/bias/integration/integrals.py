"""Σ_π coefficient · n(n−1)…(n−b+1) ∫ Π_B M_B(u) φ(u)^{n−b} du: the integrals of `power_sums` by the trapezoid rule.

In u = log t the integrand is smooth and decays at both ends, so that the rule converges exponentially: where a step
leaves an error ε of the scale, half of it leaves about ε².
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.integration.power_sums import Blocks
from truedrift.bias.integration.transforms import Transforms


def powers(terms: dict[Blocks, float]) -> list[int]:
    """The powers of w whose transforms the terms need."""
    return sorted({block.power for blocks in terms for block in blocks})


def integral(transforms: Transforms, terms: dict[Blocks, float], n: Sequence[int]) -> Float[Tensor, "Q S E"]:
    """[Q, len(n), D], or [Q, len(n), 1] for terms without a vector."""
    integrands: dict[int, Tensor] = {}
    for blocks, coefficient in terms.items():
        b = len(blocks)
        term = coefficient * _product(transforms, blocks)
        integrands[b] = integrands[b] + term if b in integrands else term
    size = torch.tensor(n, dtype=torch.float64)
    parts = []
    for b, integrand in integrands.items():
        falling = torch.stack([(size - k).clamp_min(0) for k in range(b)]).prod(0)
        phi = (transforms.log_phi.unsqueeze(-2) * (size - b).clamp_min(0).unsqueeze(-1)).exp()  # [Q, len(n), K]
        parts.append(falling.unsqueeze(-1) * (phi @ integrand))
    return transforms.step * torch.stack(parts).sum(0)


def _product(transforms: Transforms, blocks: Blocks) -> Tensor:
    """Π_B M_B [Q, K, D or 1]: scalars, and a vector, the product of two vectors, or ‖y‖²."""
    scalars = [transforms.M[p][..., :1] for p, ys in blocks if ys == 0]
    vectors = [transforms.M[p][..., 1:-1] for p, ys in blocks if ys == 1]
    squares = [transforms.M[p][..., -1:] for p, ys in blocks if ys == 2]
    if len(vectors) == 2:
        vectors = [(vectors[0] * vectors[1]).sum(-1, keepdim=True)]
    product, *others = [*vectors, *squares, *scalars]
    for other in others:
        product = product * other
    return product
