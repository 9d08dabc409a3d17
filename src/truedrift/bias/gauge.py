"""The gauge: how biased is the centroid of n of your references, can that be believed, and what n would be enough?

| input                           | what is told                                                              |
|---------------------------------|---------------------------------------------------------------------------|
| weights α [..., n]              | n_eff = 1/Σα², the largest α, Σα², how many rows one reference dominates  |
| distances d [Q, N], τ, n        | also the exact bias of Σ α d                                              |
| queries, references, τ, n       | everything                                                                |

Distances and features are read as a pool of which n references are drawn with replacement, as a training step does:

    bias = ‖E[T_n] − T*‖ (`expected_weights`),   spread = √(E‖y − T*‖²),   noise = √(tr Var T_n) (`minibatches`).

The pool is itself a sample, and what matters is the population behind it: the interval comes from leaving out parts of
the references (`leave_out`), and the `light` says whether to believe the estimate. Copies of a reference are one
reference; a bias below 1e-9 of the spread is below what is resolved, and is told as that and no more.

A temperature is dead in one of two ways. *Too cold*: in 95 % of the minibatches one reference holds more than half of
the weight, so that the centroid is the nearest reference. *Too warm*: T* stays within 1 % of the spread around the mean
of all references, whatever the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias.diagnosis import AtTemperature, Bias, Dead, Diagnosis, Quantiles, Weights
from truedrift.bias.gauging import leave_out, needed
from truedrift.bias.gauging.expected_weights import FLOOR
from truedrift.bias.gauging.inputs import (
    Sample,
    Settings,
    require_seed,
    require_source,
    rows_of,
    sample_of_distances,
    sample_of_features,
    settings_of,
)
from truedrift.bias.gauging.leave_out import Estimate
from truedrift.bias.gauging.light import Evidence, light
from truedrift.bias.gauging.needed import Needed
from truedrift.bias.gauging.references import References
from truedrift.bias.gauging.simulated import simulate, summary
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.kernels.kernel import LogKernel
from truedrift.kernels.weights import effective_sample_size

TOO_COLD = 0.95
"""Share of minibatches that one reference dominates."""
TOO_WARM = 0.01
"""‖T* − E[y]‖ as a share of the spread."""


def diagnose(
    *,
    weights: Float[Tensor, "*rows n"] | None = None,
    distances: Float[Tensor, "Q N"] | None = None,
    queries: Float[Tensor, "Q D"] | None = None,
    references: Float[Tensor, "N D"] | None = None,
    tau: float | Sequence[float] | None = None,
    n: int | None = None,
    wanted: float | None = 0.01,
    kernel: str | LogKernel = "laplace",
    seed: int = 0,
) -> Diagnosis:
    """Measure the bias of a centroid from weights, from distances, or from queries and references.

    `tau` is one temperature or several and `n` the references that a centroid sees; weights need neither. `wanted` is
    the bias for which n is searched, as a share of the spread (None: no search). Large inputs are sampled with `seed`.
    """
    return prepare(
        weights=weights,
        distances=distances,
        queries=queries,
        references=references,
        tau=tau,
        n=n,
        wanted=wanted,
        kernel=kernel,
        seed=seed,
    )()


def prepare(
    *,
    weights: Tensor | None = None,
    distances: Tensor | None = None,
    queries: Tensor | None = None,
    references: Tensor | None = None,
    tau: float | Sequence[float] | None,
    n: int | None,
    wanted: float | None,
    kernel: str | LogKernel,
    seed: int,
) -> Callable[[], Diagnosis]:
    """Check everything (ValueError) and hand over the work."""
    require_source(weights=weights, distances=distances, queries=queries, references=references)
    if weights is not None:
        require_seed(seed)
        return partial(_of_weights, rows_of(weights), seed)
    settings = settings_of(tau, n, wanted, kernel, seed)
    generator = torch.Generator().manual_seed(seed)
    if distances is not None:
        return partial(_of_sample, sample_of_distances(distances, settings, generator), settings, generator)
    assert queries is not None and references is not None  # noqa: PT018  one of the three kinds is there
    return partial(_of_sample, sample_of_features(queries, references, generator), settings, generator)


def _of_weights(alpha: Float[Tensor, "rows n"], seed: int) -> Diagnosis:
    rows, n = alpha.shape
    found = summary(effective_sample_size(alpha), alpha.amax(-1), n)
    return Diagnosis(
        source="weights",
        n=n,
        queries=rows,
        queries_used=rows,
        references=n,
        references_used=n,
        references_distinct=n,
        dimension=None,
        kernel=None,
        wanted=None,
        seed=seed,
        temperatures=(AtTemperature(tau=None, weights=found, dead=_dead(found, pull=1.0)),),
    )


def _of_sample(sample: Sample, settings: Settings, generator: torch.Generator) -> Diagnosis:
    queries_used, references_used = sample.used
    which = sample.distinct
    groups = leave_out.groups_of(which, generator)
    pairs = zip(settings.temperatures, sample.seen(settings), strict=True)
    kernel = settings.kernel
    return Diagnosis(
        source="distances" if sample.x is None else "features",
        n=settings.n,
        queries=sample.queries,
        queries_used=queries_used,
        references=sample.references,
        references_used=references_used,
        references_distinct=int(which.max()) + 1,
        dimension=sample.dimension,
        kernel=kernel if isinstance(kernel, str) else getattr(kernel, "__name__", "a function"),
        wanted=settings.wanted,
        seed=settings.seed,
        temperatures=tuple(_at(tau, seen, sample, settings, groups, generator) for tau, seen in pairs),
    )


def _at(
    tau: float,
    seen: References,
    sample: Sample,
    settings: Settings,
    groups: Int[Tensor, " N"],
    generator: torch.Generator,
) -> AtTemperature:
    """One temperature."""
    n, spread = settings.n, float(seen.spread.mean())
    simulated = simulate(seen, n, generator)
    evidence = Evidence(
        distinct=int(sample.distinct.max()) + 1,
        n_eff=Quantiles.of(seen.n_eff(sample.distinct)),
        floor=FLOOR * spread,
    )
    sizes = needed.grid(evidence.distinct) if settings.wanted is not None else ()
    estimates, at_sizes = leave_out.estimates(seen, n, groups, sizes)
    wanted = None if settings.wanted is None else settings.wanted * spread
    enough = [
        _enough(seen, *each, sizes, wanted, evidence.floor) for each in zip(estimates, at_sizes.tolist(), strict=True)
    ]
    return AtTemperature(
        tau=tau,
        weights=simulated.weights,
        spread=spread,
        noise=simulated.noise,
        references_eff=evidence.n_eff,
        pull=seen.pull,
        dead=_dead(simulated.weights, seen.pull),
        biases=tuple(
            _bias(*each, sample.queries, evidence.floor, spread, simulated.noise)
            for each in zip(estimates, enough, strict=True)
        ),
        light=light(estimates, float(seen.abc_residual(n).norm(dim=-1).mean()), simulated.weights, evidence),
    )


def _enough(
    seen: References,
    estimate: Estimate,
    found: Sequence[float],
    sizes: Sequence[int],
    wanted: float | None,
    floor: float,
) -> Needed:
    """The n for the wanted bias, from the biases that were found at some sizes; those below the floor count as it."""
    if wanted is None:
        return Needed(None, False)
    name = estimate.estimator

    def more(n: Sequence[int]) -> list[float]:
        return seen.biases((name,), n)[:, 0, 0].norm(dim=-1).mean(0).clamp_min(floor).tolist()

    return needed.smallest_n(sizes, [max(floor, each) for each in found], wanted, estimator_of(name).bias_order, more)


def _bias(estimate: Estimate, enough: Needed, queries: int, floor: float, spread: float, noise: float) -> Bias:
    low, high = estimate.interval(queries, floor)
    return Bias(
        estimator=estimate.estimator,
        norm=estimate.norm,
        low=low,
        high=high,
        resolved=estimate.norm > floor,
        quantiles=Quantiles.of(estimate.norms),
        of_spread=_ratio(estimate.norm, spread),
        of_noise=_ratio(estimate.norm, noise),
        needed_n=enough.n,
        needed_is_extrapolated=enough.extrapolated,
    )


def _ratio(a: float, b: float) -> float:
    """a/b, and 0 where b is: references that are all the same have no spread, no noise and no bias."""
    return a / b if b > 0 else 0.0


def _dead(weights: Weights, pull: float) -> Dead | None:
    if weights.dominated >= TOO_COLD:
        return "too cold"
    return "too warm" if pull <= TOO_WARM else None
