"""Small generators of every kind, inputs for them, and random changes of their parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from truedrift.generators import ConvOptions, DriftDiTOptions, Generator, MLPOptions, UNetOptions, build

DIT = DriftDiTOptions(width=24, depth=2, heads=3, patch=2, registers=3, style_draws=5, style_entries=7)
ZOO = {
    "mlp points": (MLPOptions(width=32, depth=2, noise=3, embedding=4), (2,)),
    "mlp images": (MLPOptions(width=32, depth=2, noise=6, embedding=4), (1, 4, 4)),
    "drift-dit": (DIT, (3, 4, 6)),
    "drift-dit of a noise vector": (
        DriftDiTOptions(width=16, depth=1, heads=2, patch=2, registers=2, style_draws=3, style_entries=4, noise=5),
        (3, 4, 6),
    ),
    "drift-dit without styles": (
        DriftDiTOptions(width=16, depth=1, heads=2, patch=2, registers=0, style_draws=0, style_entries=0),
        (1, 4, 4),
    ),
    "conv": (ConvOptions(widths=(8, 6), noise=5, condition=12, embedding=4), (3, 8, 12)),
    "conv of gray images": (ConvOptions(widths=(6,), noise=3, condition=8, embedding=2), (1, 14, 14)),
    "unet": (UNetOptions(width=6, multipliers=(1, 2), blocks=1, attention=4, condition=8), (3, 8, 6)),
    "unet of odd size": (UNetOptions(width=4, multipliers=(2, 1, 1), blocks=2, condition=6), (1, 7, 5)),
}
CLASSES = 4


def make_generator(name: str, seed: int = 0) -> Generator:
    options, shape = ZOO[name]
    return build(options, sample_shape=shape, classes=CLASSES, seed=seed)


def perturb(generator: Generator, seed: int = 1) -> Generator:
    """Add noise to every parameter, so that none is at its initial value."""
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=numbers) * 0.2)
    return generator


def inputs(generator: Generator, count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    z = torch.randn(count, *generator.noise_shape, generator=numbers)
    labels = torch.arange(count) % (generator.classes + 1)  # the null class too
    strength = 1 + 3 * torch.rand(count, generator=numbers)
    entries = max(generator.style_entries, 1)
    return z, labels, strength, torch.randint(entries, (count, generator.style_draws), generator=numbers)
