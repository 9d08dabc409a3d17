"""Toy distributions in the plane: Gaussian mixtures (`fig:illustration`, `app:toy`) and three other shapes.

A mixture is p(y) = (1/K) Σ_k N(y; μ_k, σ² I): y = μ_k + σ ε with k uniform on the K modes and ε ~ N(0, I). The others
are, within about [−2, 2]²,

    checkerboard   y uniform on the 8 of 4 × 4 squares of [−1, 1]² whose row and column sum to an even number
    Swiss roll     y = (t cos t, t sin t)/(4.5π) + 0.02 ε, t = 1.5π (1 + 2u), u uniform on [0, 1)
    two moons      y = (cos t, sin t) or (1 − cos t, ½ − sin t), minus (½, ¼), + 0.05 ε, t uniform on [0, π)

Each function returns points [count, 2] and the part k [count] of each point.
"""

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.errors import UserError, require_integer


@dataclass(frozen=True)
class GaussianMixture:
    """Mixture of K equally likely isotropic Gaussians.

    Args:
        means: Modes μ_k, K points of the same dimension.
        std: Standard deviation σ of every mode in every direction.

    Example:
        >>> mixture = GaussianMixture(means=((-1.0, 0.0), (1.0, 0.0)), std=0.1)
        >>> mixture.sample(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 2])
    """

    means: tuple[tuple[float, ...], ...]
    std: float

    def __post_init__(self) -> None:
        dimensions = {len(mean) for mean in self.means}
        if len(dimensions) != 1 or 0 in dimensions:
            allowed = "must be one or more points of the same dimension"
            raise UserError(f"is {self.means!r}", allowed, "pass for example ((0, 0),)", field="means")
        if not all(math.isfinite(value) for value in (self.std, *sum(self.means, ()))) or self.std < 0:
            problem, fix = f"means is {self.means!r} and std is {self.std!r}", "check both"
            raise UserError(problem, "must be finite numbers with std ≥ 0", fix)

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean E[y] = (1/K) Σ_k μ_k."""
        return tuple(math.fsum(axis) / len(self.means) for axis in zip(*self.means, strict=True))

    def sample(
        self, count: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "count D"]:
        """Draw `count` independent points y [count, D] on the generator's device."""
        return self.sample_with_modes(count, generator, dtype=dtype)[0]

    def sample_with_modes(
        self, count: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "count D"], Int[Tensor, " count"]]:
        """Draw the same points, together with the mode k [count] of each point."""
        count = require_integer("count", count, 0, 1000)
        means = torch.tensor(self.means, dtype=dtype, device=generator.device)
        k = torch.randint(len(self.means), (count,), generator=generator, device=generator.device)
        noise = torch.randn(count, means.shape[-1], generator=generator, dtype=dtype, device=generator.device)
        return means[k] + self.std * noise, k


THREE_CLUSTERS = GaussianMixture(means=((-1.2, 0.0), (1.0, 0.7), (1.0, -0.7)), std=0.25)
"""Clusters of `fig:illustration`; the paper states no coordinates, so these are our choice."""

FOUR_MODES = GaussianMixture(means=((0.5, 0.5), (0.5, -0.5), (-0.5, 0.5), (-0.5, -0.5)), std=0.1)
"""The four modes (±0.5, ±0.5) with σ = 0.1 of `app:toy`."""

EIGHT_GAUSSIANS = GaussianMixture(
    means=tuple((math.cos(k * math.pi / 4), math.sin(k * math.pi / 4)) for k in range(8)), std=0.1
)
"""Eight modes around the unit circle with σ = 0.1."""

ROLL_NOISE = 0.02
MOON_NOISE = 0.05


def checkerboard(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw uniformly from every second square of a 4 × 4 board over [−1, 1]².

    Args:
        count: Number of points.
        generator: Random numbers, on the CPU.

    Returns:
        Points [count, 2], float32, and their part [count], which is always 0.

    Example:
        >>> points, part = checkerboard(100, torch.Generator().manual_seed(0))
        >>> bool(points.abs().max() <= 1)
        True
    """
    column = torch.randint(4, (count,), generator=generator)
    row = 2 * torch.randint(2, (count,), generator=generator) + column % 2
    within = torch.rand(count, 2, generator=generator)
    return (torch.stack((column, row), -1) + within) / 2 - 1, torch.zeros(count, dtype=torch.int64)


def swiss_roll(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw from a spiral of one and a half turns, with Gaussian noise of standard deviation 0.02.

    Args:
        count: Number of points.
        generator: Random numbers, on the CPU.

    Returns:
        Points [count, 2], float32, and their part [count], which is always 0.
    """
    t = 1.5 * math.pi * (1 + 2 * torch.rand(count, generator=generator))
    spiral = torch.stack((t * t.cos(), t * t.sin()), -1) / (4.5 * math.pi)
    noise = torch.randn(count, 2, generator=generator)
    return spiral + ROLL_NOISE * noise, torch.zeros(count, dtype=torch.int64)


def two_moons(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw from two interleaved half circles, with Gaussian noise of standard deviation 0.05.

    Args:
        count: Number of points.
        generator: Random numbers, on the CPU.

    Returns:
        Points [count, 2], float32, and their moon [count]: 0 for the upper one, 1 for the lower one.
    """
    moon = torch.randint(2, (count,), generator=generator)
    t = math.pi * torch.rand(count, generator=generator)
    upper = torch.stack((t.cos(), t.sin()), -1)
    lower = torch.stack((1 - t.cos(), 0.5 - t.sin()), -1)
    noise = torch.randn(count, 2, generator=generator)
    arcs = torch.where(moon[:, None] == 0, upper, lower)
    return arcs - torch.tensor((0.5, 0.25)) + MOON_NOISE * noise, moon
