"""`diagnose`: the bias of a centroid of n of your references, the confidence in it, and the n for a wanted bias.

| input                           | result                                                                      |
|---------------------------------|-----------------------------------------------------------------------------|
| weights α [..., n]              | n_eff = 1/Σα², the largest α, Σα², and how often one reference dominates    |
| distances d [Q, N], τ, n        | also the exact bias of Σ α d                                                |
| queries, references, τ, n       | everything                                                                  |

Distances and features are a pool from which n references are drawn with replacement, as in a training step:

    bias = ‖E[T_n] − T*‖ (`expected_weights`),   spread = √(E‖y − T*‖²),   noise = √(tr Var T_n) (`uncertainty`).

The pool is itself a sample, and the bias in the population is the quantity of interest. The interval is computed by
leaving out parts of the references (`uncertainty`). Copies of a reference count as one reference. A bias below 1e-9 of
the spread is not resolved. Only this upper limit is reported. `confidence` rates whether the result can be trusted.

**Required n.** The smallest n from which the bias stays at or below the wanted one is found from exact biases at a few
n. A geometric grid from 1 to the number of references gives the last interval in which the bias crosses the wanted
value. The last crossing is used because the bias may rise before it falls. Two refinements with five values of n each
narrow the interval to about 5 %, and its upper end is returned. Beyond the number of references, the bias is
extrapolated by a power law, n^−k for an estimator of bias order k, and the result is marked as extrapolated.

**Advice.** `advice` composes a sentence from these numbers.

**Temperature.** *Too cold*: in 95 % of the minibatches one reference has more than half of the weight, so the centroid
is mostly the nearest reference. *Too warm*: ‖T* − E[y]‖ is at most 1 % of √(E‖y − E[y]‖²), so the query has almost no
influence on T*.

**Push.** If the number of generated samples of a batch is given, `push` measures the push of the field at q = p.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias import uncertainty
from truedrift.bias.advice import advise_on_bias, advise_on_weights, larger_temperatures
from truedrift.bias.checks import require_seed
from truedrift.bias.confidence import rate_confidence
from truedrift.bias.diagnose_inputs import (
    DiagnosisInput,
    DiagnosisSettings,
    input_from_distances,
    input_from_features,
    read_settings,
    require_no_generated,
    require_source,
    weight_rows,
)
from truedrift.bias.diagnosis import (
    Bias,
    Diagnosis,
    Quantiles,
    TemperatureDiagnosis,
    TemperatureStatus,
    Weights,
)
from truedrift.bias.expected_weights import FLOOR, References
from truedrift.bias.push import divide_or_zero, measure_pushes, write_push_advice
from truedrift.bias.uncertainty import simulate_batches, summarize_batches
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.kernels.kernel import LogKernel
from truedrift.kernels.weights import effective_sample_size

POINTS = 8
TRIES, ROUNDS = 5, 2
LARGEST = 1 << 31

MeanNorm = Callable[[Sequence[int]], list[float]]
"""Several n → the mean over queries of ‖bias‖ at each."""


class RequiredN(NamedTuple):
    """The smallest n from which the bias stays small enough, or None if it is above 2³¹ or was not searched."""

    n: int | None
    extrapolated: bool


def geometric_sizes(low: int, high: int, steps: int) -> tuple[int, ...]:
    """Return sizes from `low` to `high` in about equal ratios, at most `steps` + 1 of them."""
    return tuple(sorted({round(low * (high / low) ** (k / steps)) for k in range(steps + 1)}))


def smallest_n(sizes: Sequence[int], biases: Sequence[float], wanted: float, order: int, more: MeanNorm) -> RequiredN:
    """Return the smallest n from which the bias stays at or below a wanted one.

    Args:
        sizes: Increasing n at which the bias is known.
        biases: The bias at each of these n.
        wanted: The largest bias that is acceptable.
        order: The bias falls as n^−order beyond the last size.
        more: Computes the bias at other n, to narrow the interval in which it crosses `wanted`.

    Returns:
        n, or None above 2³¹; and whether it is extrapolated beyond the last size.

    Example:
        >>> smallest_n((1, 10, 100), (1.0, 0.1, 0.01), 0.2, 1, lambda sizes: [1 / n for n in sizes])
        RequiredN(n=5, extrapolated=False)
    """
    above = [k for k, bias in enumerate(biases) if bias > wanted]
    if not above:
        return RequiredN(sizes[0], False)
    last = above[-1]
    # Beyond the last size, continue by bias ∝ n^−order
    if last == len(sizes) - 1:
        log_n = math.inf
        if wanted > 0:
            log_n = math.log(sizes[last]) + (math.log(biases[last]) - math.log(wanted)) / order
        return RequiredN(math.ceil(math.exp(log_n)) if log_n < math.log(LARGEST) else None, True)
    # Narrow the last interval in which the bias crosses
    low, high = sizes[last], sizes[last + 1]
    for _ in range(ROUNDS):
        tries = [n for n in geometric_sizes(low, high, TRIES + 1) if low < n < high]
        if not tries:
            break
        low = max((n for n, bias in zip(tries, more(tries), strict=True) if bias > wanted), default=low)
        high = min((n for n in tries if n > low), default=high)
    return RequiredN(high, False)


TOO_COLD = 0.95
"""Fraction of minibatches that one reference dominates."""
TOO_WARM = 0.01
"""‖T* − E[y]‖ as a fraction of √(E‖y − E[y]‖²)."""


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
    generated: int | None = None,
) -> Diagnosis:
    """Measure the bias of a centroid from weights, from distances, or from queries and references.

    Args:
        weights: Normalized weights α [..., n]. No other argument is needed with them.
        distances: Distances [Q, N] of queries to references; they need `tau` and `n`.
        queries: Features [Q, D] of queries; they need `references`, `tau` and `n`.
        references: Features [N, D] of references, the pool from which n are drawn with replacement.
        tau: One temperature or several.
        n: The number of references per centroid.
        wanted: The bias for which n is searched, as a fraction of the spread √(E‖y − T*‖²); None for no search.
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k of features.
        seed: The seed for sampling large inputs and for minibatches.
        generated: The number g ≥ 3 of generated samples per class of a batch. With it, the push of the field of n
            positives and g − 1 negatives at q = p is measured, with one sentence of advice. Not for weights.

    Returns:
        The diagnosis at each temperature.

    Raises:
        UserError: If the arguments are not one of the three kinds of input, or not valid.

    Example:
        >>> diagnose(weights=torch.tensor([0.5, 0.5, 0.0])).temperatures[0].weights.n_eff.p50
        2.0
    """
    require_source(weights=weights, distances=distances, queries=queries, references=references)
    if weights is not None:
        require_seed(seed)
        require_no_generated(generated)
        return _diagnose_weights(weight_rows(weights), seed)
    settings = read_settings(tau, n, wanted, kernel, seed, generated)
    generator = torch.Generator().manual_seed(seed)
    if distances is not None:
        sample = input_from_distances(distances, settings, generator)
    else:
        assert queries is not None  # require_source
        assert references is not None
        sample = input_from_features(queries, references, generator)
    return _diagnose_sample(sample, settings, generator)


def _diagnose_weights(alpha: Float[Tensor, "rows n"], seed: int) -> Diagnosis:
    """Diagnose rows of weights."""
    rows, n = alpha.shape
    summary = summarize_batches(effective_sample_size(alpha), alpha.amax(-1), n)
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
        temperatures=(
            TemperatureDiagnosis(
                tau=None,
                weights=summary,
                dead=_temperature_status(summary, 1.0),
                advice=advise_on_weights(summary),
            ),
        ),
    )


def _diagnose_sample(sample: DiagnosisInput, settings: DiagnosisSettings, generator: torch.Generator) -> Diagnosis:
    """Diagnose distances or features."""
    queries_used, references_used = sample.y.shape if sample.x is None else (len(sample.x), len(sample.y))
    groups = uncertainty.jackknife_groups(sample.distinct, generator)
    pairs = zip(settings.temperatures, sample.references_by_temperature(settings), strict=True)
    temperatures = tuple(
        _diagnose_temperature(tau, references, sample, settings, groups, generator) for tau, references in pairs
    )
    kernel, n, generated = settings.kernel, settings.n, settings.generated
    return Diagnosis(
        source="distances" if sample.x is None else "features",
        n=n,
        queries=sample.queries,
        queries_used=queries_used,
        references=sample.references,
        references_used=references_used,
        references_distinct=int(sample.distinct.max()) + 1,
        dimension=None if sample.x is None else sample.y.shape[1],
        kernel=kernel if isinstance(kernel, str) else getattr(kernel, "__name__", "a function"),
        wanted=settings.wanted,
        seed=settings.seed,
        temperatures=temperatures,
        generated=generated,
        window=None if generated is None else min(n, generated - 1),
        push_advice=None if generated is None else write_push_advice(temperatures, n, generated - 1),
    )


def _diagnose_temperature(
    tau: float,
    references: References,
    sample: DiagnosisInput,
    settings: DiagnosisSettings,
    groups: Int[Tensor, " N"],
    generator: torch.Generator,
) -> TemperatureDiagnosis:
    """Diagnose one temperature."""
    n, spread = settings.n, float(references.spread.mean())
    floor, distinct = FLOOR * spread, int(sample.distinct.max()) + 1
    # Simulate minibatches
    weights, noise = simulate_batches(references, n, generator)
    # Compute biases at n, with their uncertainty, and at candidates for the required n
    sizes = () if settings.wanted is None else geometric_sizes(1, distinct, POINTS - 1)
    estimates, at_sizes = uncertainty.jackknife_estimates(references, n, groups, sizes)
    biases = []
    for estimate, norms in zip(estimates, at_sizes.clamp_min(floor).tolist(), strict=True):
        required = RequiredN(None, False)
        if settings.wanted is not None:
            required = _required_n(references, estimate.estimator, sizes, norms, settings.wanted * spread, floor)
        low, high = estimate.interval(sample.queries, floor)
        biases.append(
            Bias(
                estimator=estimate.estimator,
                norm=estimate.norm,
                low=low,
                high=high,
                resolved=estimate.norm > floor,
                quantiles=Quantiles.of(estimate.norms),
                of_spread=divide_or_zero(estimate.norm, spread),
                of_noise=divide_or_zero(estimate.norm, noise),
                needed_n=required.n,
                needed_is_extrapolated=required.extrapolated,
            )
        )
    # Rate the confidence in them by ABC
    (abc,) = (each for each in estimates if each.estimator == "abc")
    expansion = float(references.abc_residual(n).norm(dim=-1).mean())
    references_eff = Quantiles.of(references.n_eff(sample.distinct))
    # Measure the push of the field, if the number of negatives is known
    generated = settings.generated
    pushes = () if generated is None else measure_pushes(references, n, generated - 1, settings.seed)
    found = TemperatureDiagnosis(
        tau=tau,
        weights=weights,
        spread=spread,
        noise=noise,
        references_eff=references_eff,
        pull=references.relative_shift,
        dead=_temperature_status(weights, references.relative_shift),
        biases=tuple(biases),
        confidence=rate_confidence(abc, expansion, weights, references_eff, distinct, floor),
        pushes=pushes,
    )
    advice = advise_on_bias(
        found,
        n=n,
        wanted=settings.wanted,
        references=distinct,
        sufficient_tau=lambda estimator: _sufficient_tau(tau, estimator, sample, settings),
    )
    return replace(found, advice=advice)


def _sufficient_tau(tau: float, estimator: str, sample: DiagnosisInput, settings: DiagnosisSettings) -> float | None:
    """Return the smallest larger τ from which the bias stays within the wanted one; None if none does."""
    assert settings.wanted is not None
    temperatures, smallest = larger_temperatures(tau), None
    candidates = sample.references_by_temperature(replace(settings, temperatures=temperatures))
    for each, references in zip(temperatures, candidates, strict=True):
        if references.relative_shift <= TOO_WARM:
            break
        bias = float(references.biases((estimator,), (settings.n,))[:, 0, 0, 0].norm(dim=-1).mean())
        if bias > settings.wanted * float(references.spread.mean()):
            smallest = None
        elif smallest is None:
            smallest = each
    return smallest


def _required_n(
    references: References, name: str, sizes: Sequence[int], biases: Sequence[float], wanted: float, floor: float
) -> RequiredN:
    """Return the n for the wanted bias, from the biases at some sizes; biases below the floor count as the floor."""

    def more(n: Sequence[int]) -> list[float]:
        return references.biases((name,), n)[:, 0, 0].norm(dim=-1).mean(0).clamp_min(floor).tolist()

    return smallest_n(sizes, biases, wanted, estimator_of(name).bias_order, more)


def _temperature_status(weights: Weights, relative_shift: float) -> TemperatureStatus | None:
    if weights.dominated >= TOO_COLD:
        return "too cold"
    return "too warm" if relative_shift <= TOO_WARM else None
