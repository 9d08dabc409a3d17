"""The expected training signal at a fixed query, by Monte Carlo, for every option of the drift loss.

A batch has g generated samples, the first of which is the query x, n positives, and r fresh negatives if r > 0. The
training signal of x is its row of

    V  (`drift`),   or   V/RMS = −(g D/2) ∂loss/∂x  (`drift_loss`),   RMS² = mean of V² over queries and coordinates.

The RMS, the feature scale and most normalizations use the whole batch, so that their expectation is not a finite
number of integrals. Over M independent batches, the mean V̄ has the covariance Σ/M, and ‖V̄‖² − tr Σ̂/M is an unbiased
estimate of ‖E[V]‖² (`monte_carlo`).

At q = p the expectation is exactly 0 if exchanging positives and negatives changes only the sign of the signal, and
both are equally distributed given the queries. Fresh negatives with r = n fulfill this for every normalization, for
every feature scale, and after division by the RMS. Matched references with the other generated samples as negatives
fulfill it for "row" and "symmetric" before the division: the RMS is that of a batch in which the negatives of one
query are the other queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.checks import require_points, require_seed
from truedrift.centroids.estimator import Estimator
from truedrift.errors import UserError, require_integer
from truedrift.field.drift import drift
from truedrift.field.spec import Form, Normalization
from truedrift.kernels.kernel import LogKernel
from truedrift.objective.drift_loss import drift_loss
from truedrift.objective.feature_scale import FeatureScale
from truedrift.progress import Progress, no_progress
from truedrift.seeding import stream

if TYPE_CHECKING:
    from truedrift.bias.monte_carlo import TrialMoments

_ELEMENTS = 1 << 20
"""Entries of log k that are computed at a time."""


def measure_trained_field(
    x: Float[Tensor, "Q D"],
    pool_pos: Float[Tensor, "N D"],
    pool_gen: Float[Tensor, "M D"],
    *,
    tau: float,
    n: int,
    g: int,
    fresh: int = 0,
    trials: int,
    normalization: Normalization = "bidirectional",
    form: Form = "product",
    estimator: str | Estimator = "abc",
    matched: bool = False,
    divide_by_rms: bool = True,
    feature_scale: FeatureScale = "none",
    kernel: str | LogKernel = "laplace",
    seed: int = 0,
    progress: Progress = no_progress,
) -> TrialMoments:
    """Measure the expected training signal of every query over random batches.

    Args:
        x: Queries [Q, D], each the first generated sample of its batches.
        pool_pos: The pool [N, D] that positives are drawn from, with replacement.
        pool_gen: The pool [M, D] of the other generated samples and of the fresh negatives.
        tau: The temperature of the kernel, on the scale of the scaled features.
        n: The number of positives.
        g: The number of generated samples, at least 2.
        fresh: The number r of fresh negatives; 0: the other generated samples are the negatives.
        trials: The number of batches per query.
        normalization: The normalization of the kernel, as in `drift_loss`.
        form: The form of the field, as in `drift_loss`.
        estimator: The estimator of both sides.
        matched: Whether both centroids are means over windows of equally many references.
        divide_by_rms: Whether to measure the signal of the loss instead of V itself.
        feature_scale: The feature scale of the loss; "none" without division by the RMS.
        kernel: A name, or a function (x, y, tau) → log k.
        seed: The seed of the draws.
        progress: Called with the number of queries that are done.

    Returns:
        The moments with n = (n,) and the target 0, so that `bias` [Q, 1, D] is the mean signal.

    Raises:
        UserError: If an argument is not valid.

    Example:
        >>> x, pool = torch.tensor([[0.5]]), torch.tensor([[0.0], [1.0], [3.0]])
        >>> settings = dict(tau=1.0, n=16, g=4, trials=2000, normalization="row", form="separate", divide_by_rms=False)
        >>> plain, matched = (measure_trained_field(x, pool, pool, matched=on, **settings) for on in (False, True))
        >>> [bool(each.naive > 3 * each.noise) for each in (plain, matched)]
        [True, False]
    """
    # Check the arguments
    require_points(tau, x=x, pool_pos=pool_pos, pool_gen=pool_gen)
    trials = require_integer("trials", trials, 2, 20_000)
    n = require_integer("n", n, 1, 8)
    g = require_integer("g", g, 2, 8)
    fresh = require_integer("fresh", fresh, 0, 8)
    require_seed(seed)
    if feature_scale != "none" and not divide_by_rms:
        problem, fix = f"is {feature_scale!r} with divide_by_rms=False", "pass 'none', or divide_by_rms=True"
        raise UserError(problem, "only the loss scales features", fix, field="feature_scale")
    x, pool_pos, pool_gen = (each.detach().to("cpu", torch.float64) for each in (x, pool_pos, pool_gen))
    options: dict[str, Any] = {
        "normalization": normalization,
        "form": form,
        "estimator_pos": estimator,
        "estimator_neg": estimator,
        "matched": matched,
        "kernel": kernel,
    }

    def signal(gen: Tensor, pos: Tensor, fresh_neg: Tensor | None) -> Float[Tensor, "trials D"]:
        """Return the training signal of the first generated sample of every batch."""
        if not divide_by_rms:
            negatives = gen if fresh_neg is None else fresh_neg
            return drift(gen, pos, negatives, tau=tau, self_mask=fresh_neg is None, **options).V[:, 0]
        gen = gen.requires_grad_()
        result = drift_loss(gen, pos, fresh_neg=fresh_neg, temperatures=(tau,), feature_scale=feature_scale, **options)
        (gradient,) = torch.autograd.grad(result.loss.sum(), gen)
        return -0.5 * g * gen.shape[-1] * gradient[:, 0]

    # Sum over the batches of each query
    D = x.shape[1]
    first, second = (torch.zeros(len(x), 1, *shape, dtype=torch.float64) for shape in ((D,), (D, D)))
    block = max(1, min(trials, _ELEMENTS // (g * (g + n + fresh))))
    for q, query in enumerate(x):
        progress("Monte Carlo of the training signal", q, len(x))
        for begin in range(0, trials, block):
            generator, some = stream(seed, "trained field", q, begin), min(block, trials - begin)
            others, fresh_neg = (_draw(pool_gen, some, size, generator) for size in (g - 1, fresh))
            gen = torch.cat((query.expand(some, 1, -1), others), 1)
            V = signal(gen, _draw(pool_pos, some, n, generator), fresh_neg if fresh else None)
            first[q, 0] += V.sum(0)
            second[q, 0] += V.mT @ V
    progress("Monte Carlo of the training signal", len(x), len(x))
    from truedrift.bias.monte_carlo import trial_moments  # noqa: PLC0415  numba is an extra

    return trial_moments((n,), trials, torch.zeros_like(x), first, second)


def _draw(pool: Tensor, batches: int, size: int, generator: torch.Generator) -> Float[Tensor, "batches size D"]:
    """Draw references with replacement."""
    return pool[torch.randint(len(pool), (batches, size), generator=generator)]
