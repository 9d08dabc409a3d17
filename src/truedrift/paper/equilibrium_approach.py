"""How fast a field brings samples to the data, where q is not p yet; part of `equilibrium`.

The field of the population is V* = T*[p] − T*[q]. With minibatches, samples follow E[V] = F_n[p] − F_m[q] instead,
which `exact_field` computes. Two numbers compare it with V* over queries from q:

    error = √(E‖E[V] − V*‖² / E‖V*‖²),   speed = E[E[V]·V*] / E‖V*‖²  (the component along V*).

Both are shown for the data shifted, for the data stretched, and for one broad Gaussian. Particles that start from the
Gaussian show the same in steps: how many it takes until their energy distance to p is first below a threshold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from truedrift.axes import Tensor
from truedrift.bias.exact_field import exact_field
from truedrift.data.toys import FOUR_MODES
from truedrift.grids.options import Scale, StudyOptions
from truedrift.paper.equilibrium_signals import GENERATED, SHIFT, TAU
from truedrift.paper.particles import FIELDS, START_STD, field_name, move_by_every_field

SIZES = ((8, 7), (64, 63), (126, 7))
STRETCH = 1.2
STEP_SIZE = 0.05
THRESHOLDS = (0.02, 0.01)
QUERIES: dict[Scale, int] = {"smoke": 4, "cpu": 100, "paper": 200}
STEPS: dict[Scale, int] = {"smoke": 20, "cpu": 120, "paper": 120}


@dataclass(frozen=True, kw_only=True)
class FieldError:
    """E[V] compared with V* at one q; one number for each pair of sizes."""

    q: str
    estimator: str
    matched: bool
    error: tuple[float, ...]
    speed: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """The first step at which the energy distance of particles is below each threshold, one tuple per seed."""

    estimator: str
    matched: bool
    steps: tuple[tuple[int | None, ...], ...]
    """None: not within the largest number of steps."""

    def mean(self, k: int) -> float | None:
        """Return the mean over seeds of the first step below threshold k, or None if a seed does not get there."""
        first = [each[k] for each in self.steps]
        return None if None in first else math.fsum(step for step in first if step is not None) / len(first)


@dataclass(frozen=True, kw_only=True)
class Approach:
    """Fields away from q = p, and the steps of particles with a constant step size."""

    tau: float
    queries: int
    sizes: tuple[tuple[int, int], ...]
    errors: tuple[FieldError, ...]
    particles: int
    positives: int
    generated: int
    step_size: float
    largest_steps: int
    thresholds: tuple[float, ...]
    arrivals: tuple[Arrival, ...]

    def find_error(self, q: str, estimator: str, matched: bool) -> FieldError:
        """Return the numbers of this field at this q."""
        wanted = (q, estimator, matched)
        (found,) = (each for each in self.errors if (each.q, each.estimator, each.matched) == wanted)
        return found

    def find_arrival(self, estimator: str, matched: bool) -> Arrival:
        """Return the steps of the particles of this field."""
        (found,) = (each for each in self.arrivals if (each.estimator, each.matched) == (estimator, matched))
        return found


def study_approach(pool: Tensor, count: int, positives: int, seeds: int, setting: StudyOptions) -> Approach:
    """Compute the fields at every q, and move particles until they arrive.

    Args:
        pool: The pool of positives, drawn from the four modes.
        count: The number of particles.
        positives: The number of positives of a group of particles.
        seeds: The number of seeds of the particles.
        setting: Scale, seed and progress.

    Returns:
        Both parts.
    """
    generator = torch.Generator().manual_seed(setting.seed)
    x = FOUR_MODES.sample(QUERIES[setting.scale], generator, dtype=pool.dtype)
    broad = START_STD * torch.randn(len(pool), 2, generator=generator, dtype=pool.dtype)
    move = torch.tensor((SHIFT, 0.0), dtype=pool.dtype)
    starts = {
        f"data shifted by {SHIFT:g}": (x + move, pool + move),
        f"data stretched by {STRETCH:g}": (STRETCH * x, STRETCH * pool),
        f"Gaussian of standard deviation {START_STD:g}": (broad[: len(x)], broad),
    }
    errors: list[FieldError] = []
    for q, (queries, generated) in starts.items():
        for estimator, matched in FIELDS:
            setting.progress("field away from the data", len(errors), len(starts) * len(FIELDS))
            errors.append(_compare(q, queries, pool, generated, estimator, matched))
    flows_by_field = move_by_every_field(
        FOUR_MODES,
        count,
        [(STEP_SIZE, STEPS[setting.scale])],
        range(setting.seed, setting.seed + seeds),
        setting,
        tau=TAU,
        n=positives,
        g=GENERATED,
        every=1,
        below=THRESHOLDS[-1],
    )
    arrivals = [
        Arrival(
            estimator=estimator,
            matched=matched,
            steps=tuple(tuple(find_first_step(flow.energy, each) for each in THRESHOLDS) for flow in flows),
        )
        for (estimator, matched), flows in flows_by_field.items()
    ]
    return Approach(
        tau=TAU,
        queries=len(x),
        sizes=SIZES,
        errors=tuple(errors),
        particles=count,
        positives=positives,
        generated=GENERATED,
        step_size=STEP_SIZE,
        largest_steps=STEPS[setting.scale],
        thresholds=THRESHOLDS,
        arrivals=tuple(arrivals),
    )


def _compare(q: str, x: Tensor, pool: Tensor, generated: Tensor, estimator: str, matched: bool) -> FieldError:
    """Compare E[V] with V* over queries x from q."""
    n, m = zip(*SIZES, strict=True)
    field = exact_field(x, pool, generated, tau=TAU, n=n, m=m, estimator=estimator, matched=matched)
    V_star = field.population.unsqueeze(1)
    square = V_star.square().sum(-1).mean(0)
    return FieldError(
        q=q,
        estimator=estimator,
        matched=matched,
        error=tuple(((field.V - V_star).square().sum(-1).mean(0) / square).sqrt().tolist()),
        speed=tuple(((field.V * V_star).sum(-1).mean(0) / square).tolist()),
    )


def find_first_step(energy: Sequence[float], threshold: float) -> int | None:
    """Return the first step, counted from 1, whose energy distance is below the threshold, or None."""
    return next((step for step, value in enumerate(energy, start=1) if value < threshold), None)


def approach_notes(approach: Approach) -> list[str]:
    """Return the comparison with V* and the steps of the particles, one line per q or field."""
    sizes = ", ".join(f"({n}, {m})" for n, m in approach.sizes)
    notes = [
        f"Away from equal distributions (τ = {approach.tau:g}, {approach.queries} queries): error of E[V] relative to "
        f"the field V* of the population, and in brackets its component along V*, for (n, m) = {sizes}."
    ]
    for each in approach.errors:
        cells = "; ".join(f"{e:.3f} ({s:.2f})" for e, s in zip(each.error, each.speed, strict=True))
        notes.append(f"{each.q}, {field_name(each.estimator, each.matched)}: {cells}")
    count = len(approach.arrivals[0].steps)
    seeds = "one seed" if count == 1 else f"mean of {count} seeds"
    notes.append(
        f"Steps x ← x + {approach.step_size:g} V until the energy distance of {approach.particles:,} particles is "
        f"first below {' and '.join(f'{each:g}' for each in approach.thresholds)} (n = {approach.positives}, "
        f"g = {approach.generated}; {seeds}, at most {approach.largest_steps} steps)."
    )
    for arrival in approach.arrivals:
        means = [arrival.mean(k) for k in range(len(approach.thresholds))]
        text = "; ".join("never" if mean is None else f"{mean:.1f}" for mean in means)
        notes.append(f"{field_name(arrival.estimator, arrival.matched)}: {text}")
    return notes


def approach_findings(approach: Approach) -> list[str]:
    """Return how much nearer ABC comes to V*, and how much earlier its particles arrive."""
    q = approach.errors[-1].q
    large, small = 1, len(approach.sizes) - 1
    plain, abc = (approach.find_error(q, name, True) for name in ("standard", "abc"))
    (n, m), (most, few) = approach.sizes[large], approach.sizes[small]
    sentences = [
        f"far from the data ({q}), the error of the matched field is {plain.error[large]:.1%} of V*, with ABC "
        f"{abc.error[large]:.1%}, for {n} positives and {m} negatives, and {plain.error[small]:.0%}, with ABC "
        f"{abc.error[small]:.0%}, for {most} and {few}"
    ]
    steps = [approach.find_arrival(name, True).mean(-1) for name in ("standard", "abc")]
    if steps[0] is not None and steps[1] is not None:
        sentences.append(
            f"matched particles reach an energy distance of {approach.thresholds[-1]:g} after {steps[0]:.0f} steps, "
            f"with ABC after {steps[1]:.0f}"
        )
    return sentences
