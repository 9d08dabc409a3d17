"""Particles that a field moves until they are stationary: where training ends if the generator has no limits.

    x ← x + η V(x),   V from n fresh positives and the g − 1 other particles of a random group of g.

The step size η falls in stages, so that the particles first cross the plane and then settle. Their distance to the
data is the unbiased energy distance 2 E‖x − y‖ − E‖x − x′‖ − E‖y − y′‖, which is 0 in expectation for independent
draws from p. For a mixture of isotropic Gaussians in the plane, the expectations over y need no sample: with
ν = ‖x − μ‖ and a = ν²/(2σ²), the distance to N(μ, σ² I) has the mean of a Rice distribution,

    E‖x − y‖ = σ √(π/2) ((1 + a) I₀(a/2) + a I₁(a/2)) e^{−a/2}.

The field of all groups is a compiled loop, because a flow has thousands of small steps. Several flows run at a time.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from truedrift.axes import Float, Tensor
from truedrift.bias.trials import power_sums
from truedrift.data.toys import GaussianMixture
from truedrift.errors import UserError
from truedrift.grids.options import StudyOptions
from truedrift.report.figure import LOOKS
from truedrift.seeding import stream

Array = NDArray[np.float64]

ESTIMATORS = ("standard", "abc", "abc2")
"""The estimators of the compiled loop, in the order of `power_sums`."""
FIELDS = tuple((estimator, matched) for matched in (False, True) for estimator in ESTIMATORS)
"""Estimator of the fields that move particles, and whether they are matched."""
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
    def last_third(self) -> int:
        """The number of snapshots in the last third of the steps, an even number and at least 4."""
        return max(4, len(self.energy[0]) // 6 * 2)

    @property
    def final(self) -> tuple[float, ...]:
        """Mean energy distance over the last third of the snapshots, one per seed."""
        return tuple(_mean(each[-self.last_third :]) for each in self.energy)

    @property
    def mean(self) -> float:
        """Mean of `final` over seeds."""
        return _mean(self.final)

    @property
    def change(self) -> float:
        """Mean energy distance of the last sixth of the snapshots minus that of the sixth before, over all seeds."""
        return _mean([_mean(last) - _mean(first) for first, last in self._halves])

    @property
    def change_error(self) -> float:
        """Standard error of `change`, estimated from the snapshots themselves.

        It is the larger of two estimates. One is from the means of consecutive snapshots in each half, because single
        snapshots depend on each other. It misses changes that are slower than these means. The other, which includes
        them, is from the differences between seeds; it needs two seeds.
        """
        batches = [_batch_means(half) for pair in self._halves for half in pair]
        from_batches = 2 * _mean([_variance(means) / len(means) for means in batches])  # of the change of one seed
        changes = [_mean(last) - _mean(first) for first, last in self._halves]
        from_seeds = _variance(changes) if len(changes) > 1 else 0.0
        return math.sqrt(max(from_batches, from_seeds) / len(changes))

    @property
    def is_stationary(self) -> bool:
        """Whether `change` is at most two of its standard errors."""
        return abs(self.change) <= 2 * self.change_error

    @property
    def _halves(self) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        """The snapshots of both halves of the last third, one pair per seed."""
        half = self.last_third // 2
        return [(each[-2 * half : -half], each[-half:]) for each in self.energy]


BATCHES = 3
"""Number of means of consecutive snapshots in a half, or fewer if it has fewer snapshots."""


def particle_notes(particles: Sequence[Particles]) -> list[str]:
    """Return where the particles of every field come to rest, one line each."""
    notes = []
    for each in particles:
        ratio, rest = _mean(each.deviation_ratio), "at rest" if each.is_stationary else "still moving"
        notes.append(
            f"{field_name(each.estimator, each.matched)}: {each.mean:.1e}, {min(each.final):.1e} – "
            f"{max(each.final):.1e}, ratio {ratio:.3f}, change {each.change:+.0e} ± {each.change_error:.0e} ({rest})"
        )
    return notes


def field_name(estimator: str, matched: bool) -> str:
    """Return the name of a field for readers, for example "matched ABC"."""
    return ("matched " if matched else "") + LOOKS[estimator][0]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    return math.fsum((value - _mean(values)) ** 2 for value in values) / (len(values) - 1)


def _batch_means(values: Sequence[float]) -> list[float]:
    """Return the means of consecutive batches of equal size, without the first values if they do not divide."""
    count = min(BATCHES, len(values))
    size = len(values) // count
    return [_mean(values[len(values) - k * size :][:size]) for k in range(count, 0, -1)]


@dataclass(frozen=True)
class Flow:
    """The particles [count, 2] at the end, and their energy distance to p after every `every` steps."""

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
    below: float = -math.inf,
) -> Flow:
    """Move particles by the field with row normalization.

    Args:
        p: The distribution of the positives, in the plane.
        count: The number of particles, a multiple of g.
        stages: Step sizes η with their numbers of steps.
        tau: The temperature of the kernel.
        n: The number of positives of a group, a multiple of g − 1 if matched.
        g: The number of particles of a group, of which the others are the negatives of each.
        estimator: The estimator of both sides, one of `ESTIMATORS`.
        matched: Whether T⁺ is the mean over windows of g − 1 positives.
        seed: The seed of the start, the groups and the positives, the same for every field.
        every: The number of steps between two energy distances.
        below: The energy distance at which to stop.

    Returns:
        The particles at the end, and their energy distances.
    """
    size = g - 1 if matched else n
    if n % size:
        problem, fix = f"is {n} with {g} particles per group", f"pass a multiple of {g - 1}"
        raise UserError(problem, "must be a multiple of g − 1 for matched references", fix, field="n")
    generator = stream(seed, "particles")
    x = START_STD * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    energy: list[float] = []
    for k, eta in enumerate((eta for eta, steps in stages for _ in range(steps)), start=1):
        # Deal the particles into groups, each with its own positives
        group = torch.randperm(count, generator=generator).view(-1, g)
        positives = p.sample(len(group) * n, generator, dtype=x.dtype).view(len(group), n, 2)
        V = compute_field(x[group].numpy(), positives.numpy(), tau, size, ESTIMATORS.index(estimator))
        x[group] += eta * torch.from_numpy(V)
        if k % every == 0:
            energy.append(energy_distance(x, p))
            if energy[-1] < below:
                break
    return Flow(x, tuple(energy))


def move_by_every_field(
    p: GaussianMixture,
    count: int,
    stages: Sequence[tuple[float, int]],
    seeds: Sequence[int],
    setting: StudyOptions,
    **options: Any,
) -> dict[tuple[str, bool], list[Flow]]:
    """Move particles by each of `FIELDS` with each seed, as many flows at a time as torch uses threads.

    Args:
        p: The distribution of the positives.
        count: The number of particles.
        stages: Step sizes with their numbers of steps.
        seeds: The seeds, the same for every field.
        setting: Reports the progress.
        options: Other arguments of `move_particles`.

    Returns:
        The flows of all seeds, for every field.
    """

    def move(task: tuple[str, bool, int]) -> Flow:
        estimator, matched, seed = task
        return move_particles(p, count, stages, estimator=estimator, matched=matched, seed=seed, **options)

    tasks = [(estimator, matched, seed) for estimator, matched in FIELDS for seed in seeds]
    flows: dict[tuple[str, bool], list[Flow]] = {field: [] for field in FIELDS}
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for done, ((estimator, matched, _), flow) in enumerate(zip(tasks, pool.map(move, tasks), strict=True)):
            setting.progress("particles", done, len(tasks))
            flows[estimator, matched].append(flow)
    return flows


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def compute_field(gen: Array, pos: Array, tau: float, size: int, estimator: int) -> Array:
    """Return V [G, g, 2] of groups gen [G, g, 2] with positives pos [G, n, 2] in windows of `size`."""
    G, g, D = gen.shape
    n = pos.shape[1]
    V = np.zeros((G, g, D))
    for a in range(G):
        w, y = np.empty(n + g - 1), np.empty((D, n + g - 1))  # columns: positives, then the other particles
        e = np.empty((3, D))
        for i in range(g):
            # Copy the references and compute their weights
            for j in range(n + g - 1):
                other = j - n if j - n < i else j - n + 1
                square = 0.0
                for d in range(D):
                    y[d, j] = pos[a, j, d] if j < n else gen[a, other, d]
                    square += (y[d, j] - gen[a, i, d]) ** 2
                w[j] = math.exp(-math.sqrt(square) / tau)
            # T⁺ as the mean over windows, minus T⁻
            for begin in range(0, n, size):
                power_sums(w[begin : begin + size], y[:, begin : begin + size], e)
                V[a, i] += e[estimator] * (size / n)
            power_sums(w[n:], y[:, n:], e)
            V[a, i] -= e[estimator]
    return V


def energy_distance(x: Float[Tensor, "N 2"], p: GaussianMixture) -> float:
    """Compute the unbiased energy distance between points in the plane and the mixture."""
    x = x.double()
    means = torch.tensor(p.means, dtype=torch.float64)
    between = mean_distance(torch.cdist(x, means), p.std).mean()
    among_y = mean_distance(torch.cdist(means, means), math.sqrt(2) * p.std).mean()
    return float(2 * between - among_y) - float(compute_mean_pair_distance(x.numpy()))


@numba.njit(nogil=True, cache=True)  # type: ignore[misc]
def compute_mean_pair_distance(x: Array) -> float:
    """Return the mean of ‖x_i − x_j‖ over all pairs j < i."""
    N, D = x.shape
    total = 0.0
    for i in range(N):
        for j in range(i):
            square = 0.0
            for d in range(D):
                square += (x[i, d] - x[j, d]) ** 2
            total += math.sqrt(square)
    return 2 * total / (N * (N - 1))


def mean_distance(nu: Tensor, std: float) -> Tensor:
    """Compute E‖x − y‖ for y ~ N(μ, std² I) in the plane, from ν = ‖x − μ‖."""
    a = nu.square() / (2 * std**2)
    return std * math.sqrt(math.pi / 2) * ((1 + a) * torch.special.i0e(a / 2) + a * torch.special.i1e(a / 2))
