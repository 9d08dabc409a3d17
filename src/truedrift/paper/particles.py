"""Particles that a field moves until they are stationary: where training ends if the generator has no limits.

    x ← x + η V(x),   V from n fresh positives and the g − 1 other particles of a random group of g.

The step size η falls in stages, so that the particles first cross the plane and then settle. Their distance to the
data is the unbiased energy distance 2 E‖x − y‖ − E‖x − x′‖ − E‖y − y′‖, which is 0 in expectation for independent
draws from p. For a mixture of isotropic Gaussians in the plane, the expectations over y need no sample: with
ν = ‖x − μ‖ and a = ν²/(2σ²), the distance to N(μ, σ² I) has the mean of a Rice distribution,

    E‖x − y‖ = σ √(π/2) ((1 + a) I₀(a/2) + a I₁(a/2)) e^{−a/2}.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.data.toys import GaussianMixture
from truedrift.field.drift import drift
from truedrift.seeding import stream

START_STD = 0.5
"""Particles start from N(0, START_STD² I)."""


@dataclass(frozen=True, kw_only=True)
class Particles:
    """Particles moved by one field. Energy distances are to p, one tuple per seed."""

    estimator: str
    matched: bool
    energy: tuple[tuple[float, ...], ...]
    """After every `snapshot_steps` steps."""
    deviation_ratio: tuple[float, ...]
    """Standard deviation of the particles at the end, divided by that of p."""
    points: tuple[tuple[float, float], ...]
    """The particles of the first seed at the end, rounded for the figure."""

    @property
    def final(self) -> tuple[float, ...]:
        """Mean energy distance of the last four snapshots, one per seed."""
        return tuple(math.fsum(each[-4:]) / len(each[-4:]) for each in self.energy)

    @property
    def mean(self) -> float:
        """Mean of `final` over seeds."""
        return math.fsum(self.final) / len(self.final)


@dataclass(frozen=True)
class Flow:
    """The particles [count, D] at the end, and their energy distance to p after every `every` steps."""

    x: Tensor
    energy: tuple[float, ...]


def move_particles(
    p: GaussianMixture,
    count: int,
    stages: Sequence[tuple[float, int]],
    *,
    tau: float,
    n: int,
    g: int,
    estimator: str,
    matched: bool,
    seed: int,
    every: int,
) -> Flow:
    """Move particles by the field with row normalization.

    Args:
        p: The distribution of the positives.
        count: The number of particles, a multiple of g.
        stages: Step sizes η with their numbers of steps.
        tau: The temperature of the kernel.
        n: The number of positives of a group.
        g: The number of particles of a group, of which the others are the negatives of each.
        estimator: The estimator of both sides.
        matched: Whether both centroids are means over windows of min(n, g − 1) references.
        seed: The seed of the start, the groups and the positives, the same for every field.
        every: The number of steps between two energy distances.

    Returns:
        The particles at the end, and their energy distances.
    """
    generator = stream(seed, "particles")
    x = START_STD * torch.randn(count, 2, generator=generator)
    sizes = [eta for eta, steps in stages for _ in range(steps)]
    energy = []
    for k, eta in enumerate(sizes, start=1):
        # Deal the particles into groups, each with its own positives
        group = torch.randperm(count, generator=generator).view(-1, g)
        positives = p.sample(len(group) * n, generator).view(len(group), n, -1)
        gen = x[group]
        field = drift(
            gen,
            positives,
            gen,
            tau=tau,
            estimator_pos=estimator,
            estimator_neg=estimator,
            self_mask=True,
            matched=matched,
        )
        x[group] = gen + eta * field.V
        if k % every == 0:
            energy.append(energy_distance(x, p))
    return Flow(x, tuple(energy))


def energy_distance(x: Float[Tensor, "N 2"], p: GaussianMixture) -> float:
    """Compute the unbiased energy distance between points in the plane and the mixture."""
    x, N = x.double(), len(x)
    means = torch.tensor(p.means, dtype=torch.float64)
    between = mean_distance(torch.cdist(x, means), p.std).mean()
    among_x = torch.cdist(x, x).sum() / (N * (N - 1))
    among_y = mean_distance(torch.cdist(means, means), math.sqrt(2) * p.std).mean()
    return float(2 * between - among_x - among_y)


def mean_distance(nu: Tensor, std: float) -> Tensor:
    """Compute E‖x − y‖ for y ~ N(μ, std² I) in the plane, from ν = ‖x − μ‖."""
    a = nu.square() / (2 * std**2)
    return std * math.sqrt(math.pi / 2) * ((1 + a) * torch.special.i0e(a / 2) + a * torch.special.i1e(a / 2))
