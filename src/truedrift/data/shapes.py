"""Shapes in the plane that no mixture draws: checkerboard, Swiss roll, two moons. All lie within about [−2, 2]².

    checkerboard   y uniform on the 8 of 4 × 4 squares of [−1, 1]² whose row and column sum to an even number
    Swiss roll     y = (t cos t, t sin t)/(4.5π) + 0.02 ε, t = 1.5π (1 + 2u), u uniform on [0, 1)
    two moons      y = (cos t, sin t) or (1 − cos t, ½ − sin t), minus (½, ¼), + 0.05 ε, t uniform on [0, π)

with ε ~ N(0, I). Each function returns points [count, 2] and the part k [count] that each one is of.
"""

from __future__ import annotations

import math

import torch

from truedrift.axes import Tensor

ROLL_NOISE = 0.02
MOON_NOISE = 0.05


def checkerboard(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Uniform on every second square of a 4 × 4 board over [−1, 1]²; one part."""
    column = torch.randint(4, (count,), generator=generator)
    row = 2 * torch.randint(2, (count,), generator=generator) + column % 2
    within = torch.rand(count, 2, generator=generator)
    return (torch.stack((column, row), -1) + within) / 2 - 1, torch.zeros(count, dtype=torch.int64)


def swiss_roll(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A spiral of one and a half turns, with noise; one part."""
    t = 1.5 * math.pi * (1 + 2 * torch.rand(count, generator=generator))
    spiral = torch.stack((t * t.cos(), t * t.sin()), -1) / (4.5 * math.pi)
    noise = torch.randn(count, 2, generator=generator)
    return spiral + ROLL_NOISE * noise, torch.zeros(count, dtype=torch.int64)


def two_moons(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two half circles that reach into each other, with noise; the part is the moon."""
    moon = torch.randint(2, (count,), generator=generator)
    t = math.pi * torch.rand(count, generator=generator)
    upper = torch.stack((t.cos(), t.sin()), -1)
    lower = torch.stack((1 - t.cos(), 0.5 - t.sin()), -1)
    noise = torch.randn(count, 2, generator=generator)
    arcs = torch.where(moon[:, None] == 0, upper, lower)
    return arcs - torch.tensor((0.5, 0.25)) + MOON_NOISE * noise, moon
