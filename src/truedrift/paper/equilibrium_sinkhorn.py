"""The bias of a Sinkhorn plan that is computed from a minibatch; part of `equilibrium`.

A minibatch of n queries and n references has the plan P with row sums 1 and column sums 1, and T(x) = Σ_j P_ij y_j for
the row of x. The plan of the population couples all of q with all of p,

    T*(x) = Σ_y π(y|x) y,   π(y|x) ∝ k(x, y) v(y),   v from the plan of both pools, iterated to convergence.

The plan couples the whole minibatch: with few samples the numbers of queries and references per mode differ, and the
plan must send queries to other modes. ABC corrects the bias of a ratio of sums within one row, so that its theorem
does not apply. The study measures E[T(x)] − T*(x) by Monte Carlo with and without ABC's reweighting of each row, at
queries x of a shifted q, from the same minibatches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.monte_carlo import TrialMoments, trial_moments
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.data.toys import FOUR_MODES
from truedrift.field.matching import sinkhorn_log_plan
from truedrift.grids.options import Scale, StudyOptions
from truedrift.kernels.kernel import laplace
from truedrift.kernels.weights import softmax
from truedrift.paper.equilibrium_signals import SHIFT, TAU, MeanSquare
from truedrift.report.figure import LOOKS
from truedrift.seeding import stream

SIZES: dict[Scale, tuple[int, ...]] = {"smoke": (8, 16), "cpu": (8, 16, 32, 64), "paper": (8, 16, 32, 64, 128)}
POOL_POINTS: dict[Scale, int] = {"smoke": 200, "cpu": 2_000, "paper": 4_000}
QUERIES: dict[Scale, int] = {"smoke": 4, "cpu": 12, "paper": 40}
BATCHES: dict[Scale, int] = {"smoke": 200, "cpu": 2_000, "paper": 20_000}
POPULATION_ITERATIONS = 2_000
_ELEMENTS = 1 << 19
"""Entries of log k that are computed at a time."""


@dataclass(frozen=True, kw_only=True)
class SinkhornBias(MeanSquare):
    """Mean square over queries of E[T] − T* for minibatches of n queries and n references."""

    n: int
    estimator: str
    variance: float
    """Mean over queries of the total variance of T."""


@dataclass(frozen=True, kw_only=True)
class SinkhornBiases:
    """The bias for every n and estimator, from pools of `pool_points` queries and references."""

    tau: float
    shift: float
    pool_points: int
    queries: int
    batches: int
    biases: tuple[SinkhornBias, ...]

    def find_bias(self, n: int, estimator: str) -> SinkhornBias:
        """Return the bias of this size and estimator."""
        (found,) = (each for each in self.biases if (each.n, each.estimator) == (n, estimator))
        return found


def study_sinkhorn(setting: StudyOptions) -> SinkhornBiases:
    """Measure the bias at the scale of the options."""
    scale = setting.scale
    generator = torch.Generator().manual_seed(setting.seed)
    counts = (POOL_POINTS[scale], POOL_POINTS[scale], QUERIES[scale])
    positives, generated, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in counts)
    move = torch.tensor((SHIFT, 0.0), dtype=x.dtype)
    x, generated = x + move, generated + move
    T_star = compute_population_centroid(x, positives, generated, TAU)
    biases = []
    for k, n in enumerate(SIZES[scale]):
        setting.progress("Sinkhorn plans", k, len(SIZES[scale]))
        found = measure_sinkhorn(
            x,
            positives,
            generated,
            T_star,
            tau=TAU,
            n=n,
            batches=BATCHES[scale],
            estimators=tuple(LOOKS),
            seed=setting.seed,
        )
        for name, moments in found.items():
            bias = SinkhornBias(
                n=n,
                estimator=name,
                square=float(moments.squared.mean()),
                square_error=float(moments.squared_error.square().sum().sqrt() / len(x)),
                variance=float(moments.variance.mean()),
            )
            biases.append(bias)
    return SinkhornBiases(
        tau=TAU, shift=SHIFT, pool_points=counts[0], queries=len(x), batches=BATCHES[scale], biases=tuple(biases)
    )


def compute_population_centroid(x: Tensor, positives: Tensor, generated: Tensor, tau: float) -> Float[Tensor, "Q D"]:
    """Compute T* at queries from the plan between both pools, of equal size.

    Args:
        x: Queries [Q, D].
        positives: The pool [N, D] of references.
        generated: The pool [N, D] of queries that the plan couples with it.
        tau: The temperature of the kernel.

    Returns:
        T* [Q, D].
    """
    log_k = laplace(generated, positives, tau)
    log_plan = sinkhorn_log_plan(log_k.unsqueeze(-2), POPULATION_ITERATIONS).squeeze(-2)
    log_v = (log_plan - log_k)[0]  # log u + log v of the first row: log v up to a constant
    return softmax(laplace(x, positives, tau) + log_v) @ positives


def measure_sinkhorn(
    x: Float[Tensor, "Q D"],
    positives: Float[Tensor, "N D"],
    generated: Float[Tensor, "M D"],
    T_star: Float[Tensor, "Q D"],
    *,
    tau: float,
    n: int,
    batches: int,
    estimators: Sequence[str],
    seed: int,
) -> dict[str, TrialMoments]:
    """Measure E[T] − T* of the minibatch plan, with every estimator of each row, from the same minibatches.

    Args:
        x: Queries [Q, D], each the first of its minibatches.
        positives: The pool of references, drawn with replacement.
        generated: The pool of the other n − 1 queries.
        T_star: The targets [Q, D].
        tau: The temperature of the kernel.
        n: The number of queries and of references of a minibatch.
        batches: The number of minibatches per query.
        estimators: Names of the estimators.
        seed: The seed of the draws.

    Returns:
        The moments of every estimator.
    """
    D = x.shape[1]
    sums = {name: [torch.zeros(len(x), 1, *shape, dtype=x.dtype) for shape in ((D,), (D, D))] for name in estimators}
    block = max(1, _ELEMENTS // n**2)
    for q, query in enumerate(x):
        for begin in range(0, batches, block):
            # Draw minibatches and compute the row of the query in their plans
            generator, some = stream(seed, "sinkhorn", n, q, begin), min(block, batches - begin)
            others = generated[torch.randint(len(generated), (some, n - 1), generator=generator)]
            y = positives[torch.randint(len(positives), (some, n), generator=generator)]
            log_k = laplace(torch.cat((query.expand(some, 1, -1), others), 1), y, tau)
            log_row = sinkhorn_log_plan(log_k.unsqueeze(-2))[:, 0]  # [some, 1, n]
            # Reweight the row
            for name, (first, second) in sums.items():
                T = (estimator_of(name).reweight(log_row) @ y).squeeze(-2) - T_star[q]
                first[q, 0] += T.sum(0)
                second[q, 0] += T.mT @ T
    zero = torch.zeros_like(x)
    return {name: trial_moments((n,), batches, zero, first, second) for name, (first, second) in sums.items()}


def sinkhorn_notes(record: SinkhornBiases) -> list[str]:
    """Return the bias of every n, one line per estimator."""
    notes = [
        f"Bias of the centroid of a minibatch Sinkhorn plan against the plan of the population (τ = {record.tau:g}, "
        f"generated samples shifted by {record.shift:g}), root mean square over {record.queries} queries, "
        f"{record.batches:,} minibatches each; in brackets the variance."
    ]
    sizes = dict.fromkeys(each.n for each in record.biases)
    for estimator in dict.fromkeys(each.estimator for each in record.biases):
        cells = [(n, record.find_bias(n, estimator)) for n in sizes]
        text = "; ".join(f"n = {n}: {each.text()} ({each.variance:.1e})" for n, each in cells)
        notes.append(f"sinkhorn, {LOOKS[estimator][0]}: {text}")
    return notes


def sinkhorn_findings(record: SinkhornBiases) -> list[str]:
    """Return the share of the bias that ABC leaves at the smallest and at the largest n."""
    shares = []
    for n in (record.biases[0].n, record.biases[-1].n):
        plain, abc = (record.find_bias(n, name).root for name in ("standard", "abc"))
        shares.append(f"{abc / plain:.0%} at n = {n}" if plain else f"an unknown share at n = {n}")
    return [f"Sinkhorn: reweighting each row by ABC leaves {' and '.join(shares)} of the bias of the plain plan"]
