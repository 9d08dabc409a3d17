"""Groups of features to test a loss and its gradient; nothing is symmetric, so that swapped arguments are noticed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Sides = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def feature_groups(n: int, m: int, u: int = 0, D: int = 6, seed: int = 0) -> Sides:
    """gen [2, 2, n, D], pos [2, 2, m, D], neg [2, 2, u, D] and its weights [2, 2, u], or None, None for u = 0.

    Two classes and two scales; every group and each of its sides has a different mean and scale.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, 2, *shape, generator=generator, dtype=torch.float64)

    size = torch.tensor([[1.0, 3.0], [0.5, 2.0]], dtype=torch.float64)[..., None, None]
    place = draw(1, D)
    gen, pos = size * draw(n, D) + place, size * 0.7 * draw(m, D).exp() - place
    if u == 0:
        return gen, pos, None, None
    return gen, pos, size * draw(u, D), draw(u).exp()


def loss_and_gradient(loss_of: Callable[..., Tensor], gen: Tensor, *rest: Tensor | None, **options: object):
    """Return the losses, and the gradient with respect to gen of a sum with a different weight for every group."""
    gen = gen.detach().clone().requires_grad_()
    loss = loss_of(gen, *rest, **options)
    weight = torch.arange(1, loss.numel() + 1, dtype=loss.dtype).view_as(loss)
    (gradient,) = torch.autograd.grad((weight * loss).sum(), gen)
    return loss.detach(), gradient
