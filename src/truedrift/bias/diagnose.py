"""Whether to believe the gauge: a light for the bias of ABC, calibrated on simulated populations.

From the numbers of `leave_out` for ABC at n, and (3 m_2 g_2 − 2 g_3)/n² from the same references over its exact bias:

| color  | when                                                 | what it says                                      |
|--------|------------------------------------------------------|---------------------------------------------------|
| red    | noise > NOISE or error > ERROR or abs(drift) > DRIFT | too few references: do not believe the estimate   |
| yellow | else, the ratio is beyond a factor of AGREEMENT      | believe it at this n; the expansion in 1/n fails  |
| green  | else                                                 | estimate and expansion are within a factor of 2   |

Two things come before the rule. With fewer distinct references than groups to leave out the light is red. And where
ABC's bias is below what is resolved (`expected_weights.FLOOR`), those numbers are those of rounding errors and say
nothing. The light is green then, for a bias that does not matter, if 95 % of the queries see GROUPS distinct references
or more, 1/Σα² ≥ GROUPS; and red if not, because minibatches of n ≫ N draws hold each of N references and have no bias,
while those of the population may.

Yellow is what n_eff near 1 looks like: the bias at n is known, but not its law in n, and a correction of higher order
gains nothing. The thresholds were chosen on 600 populations of `experiments/light_calibration.py`; MEASURED is what 300
others showed.

The n from which on a bias stays below the wanted one, by exact biases at a few n.

A geometric grid from 1 to the number of references finds the last interval in which the bias crosses; two rounds of
five trials in it narrow that to about 5 %, and the upper end is the answer. The bias may rise before it falls: the last
crossing counts. Beyond the number of references a power law continues from there, n^−k for an estimator of bias
order k, and is marked as such.

The gauge: how biased is the centroid of n of your references, can that be believed, and what n would be enough?

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias import uncertainty
from truedrift.bias.diagnose_inputs import (
    DiagnosisInput,
    DiagnosisSettings,
    input_from_distances,
    input_from_features,
    read_settings,
    require_seed,
    require_source,
    weight_rows,
)
from truedrift.bias.diagnosis import (
    Bias,
    Color,
    Diagnosis,
    Quantiles,
    Reliability,
    TemperatureDiagnosis,
    TemperatureStatus,
    Weights,
)
from truedrift.bias.expected_weights import FLOOR, References
from truedrift.bias.uncertainty import GROUPS, Estimate, simulate_batches, summarize_batches
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.kernels.kernel import LogKernel
from truedrift.kernels.weights import effective_sample_size

NOISE = 0.9
ERROR = 0.4
DRIFT = 0.5
AGREEMENT = 1.7


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Of `cases` populations that had no part in choosing the thresholds."""

    cases: int
    usable: float
    """Share of cases in which estimate and expansion are within a factor of 2 of the truth."""
    false_green: float
    """Share of green lights in which one of both is not."""
    unusable_called_green: float
    usable_called_green: float
    believed: float
    """Share of cases that are green or yellow."""
    falsely_believed: float
    """Share of those in which the estimate is not within a factor of 2."""
    right_called_believed: float
    """Share of cases with an estimate within a factor of 2 that are green or yellow."""
    coverage: tuple[float, ...]
    """Of the 95 % intervals for standard, ABC and ABC-2."""


CALIBRATION = Calibration(
    cases=300,
    usable=0.55,
    false_green=0.014388,
    unusable_called_green=0.014815,
    usable_called_green=0.8303,
    believed=0.77333,
    falsely_believed=0.012931,
    right_called_believed=0.81786,
    coverage=(0.93667, 0.93, 0.93333),
)


def reliability_color(*, noise: float, error: float, drift: float, agreement: float) -> Color:
    """The rule."""
    if noise > NOISE or error > ERROR or abs(drift) > DRIFT:
        return "red"
    return "green" if 1 / AGREEMENT <= agreement <= AGREEMENT else "yellow"


@dataclass(frozen=True, kw_only=True)
class ReliabilityEvidence:
    """What the references are, beside the estimates from them."""

    distinct: int
    n_eff: Quantiles
    """1/Σα² over the distinct references, over queries."""
    floor: float
    """FLOOR times the spread."""


def rate_reliability(
    estimates: Sequence[Estimate], closed: float, weights: Weights, evidence: ReliabilityEvidence
) -> Reliability:
    """From the estimates, one of them ABC's, and the closed form of ABC's bias from the same references."""
    (abc,) = (each for each in estimates if each.estimator == "abc")
    if evidence.distinct < GROUPS or abc.norm <= evidence.floor:
        return _rate_by_interval(evidence)
    agreement = closed / abc.norm
    shown = reliability_color(noise=abc.noise, error=abc.error, drift=abc.drift, agreement=agreement)
    return Reliability(
        color=shown,
        reason=_reason(shown, abc, agreement, weights.n_eff.p50),
        noise=abc.noise,
        error=abc.error,
        drift=abc.drift,
        agreement=agreement,
    )


def _rate_by_interval(evidence: ReliabilityEvidence) -> Reliability:
    """Where the numbers of the rule are unknown."""
    if evidence.distinct < GROUPS:
        return Reliability(
            color="red", reason=f"too few distinct references: {evidence.distinct}, of {GROUPS} at least"
        )
    if evidence.n_eff.p05 < GROUPS:
        seen = f"a query sees {evidence.n_eff.p05:.2g} of them"
        return Reliability(color="red", reason=f"too few references: {seen}, which says nothing of a bias this small")
    return Reliability(color="green", reason=f"below what matters: ABC's bias is less than {FLOOR:g} of the spread")


def _reason(shown: Color, abc: Estimate, agreement: float, n_eff: float) -> str:
    if shown == "green":
        return "the estimate and the expansion in 1/n agree, and hold when references are left out"
    if shown == "yellow":
        off = max(agreement, 1 / agreement) if agreement > 0 else math.inf
        return f"believe the bias at this n; at n_eff = {n_eff:.2g} the expansion is off {off:.2g}-fold"
    if abc.noise > NOISE:
        return f"too few references: the noise of the bias vector is {abc.noise:.2g} times the bias"
    if abc.error > ERROR:
        return f"too few references: the bias is known to a factor of {math.exp(min(2 * abc.error, 99.0)):.2g} only"
    change = math.exp(min(abs(abc.drift), 99.0))
    return f"too few references: more of them would change the bias by a factor of {change:.2g}"


POINTS = 8
TRIES, ROUNDS = 5, 2
LARGEST = 1 << 31

MeanNorm = Callable[[Sequence[int]], list[float]]
"""n → mean over queries of ‖bias‖ at each."""


@dataclass(frozen=True)
class RequiredN:
    """n, or None if it would be beyond 2³¹."""

    n: int | None
    extrapolated: bool


def interpolate_size(low: int, high: int) -> tuple[int, ...]:
    """TRIES sizes between both, in equal ratios."""
    return tuple(sorted({round(low * (high / low) ** (k / (TRIES + 1))) for k in range(1, TRIES + 1)}))


def candidate_sizes(most: int) -> tuple[int, ...]:
    """1 to `most` in about equal ratios."""
    return tuple(sorted({round(most ** (k / (POINTS - 1))) for k in range(POINTS)}))


def smallest_n(sizes: Sequence[int], found: Sequence[float], wanted: float, order: int, more: MeanNorm) -> RequiredN:
    """From the biases `found` at `sizes`, asking for `more` where they cross `wanted`."""
    above = [k for k, bias in enumerate(found) if bias > wanted]
    if not above:
        return RequiredN(sizes[0], False)
    if above[-1] == len(sizes) - 1:
        return _beyond_grid(sizes[-1], found[-1], wanted, order)
    points = list(zip(sizes, found, strict=True))[above[-1] : above[-1] + 2]
    for _ in range(ROUNDS):
        low, high = _crossing(points, wanted)
        tries = [n for n in interpolate_size(low[0], high[0]) if low[0] < n < high[0]]
        points = [low, *zip(tries, more(tries) if tries else [], strict=True), high]
    return RequiredN(_crossing(points, wanted)[1][0], False)


def _crossing(points: Sequence[tuple[int, float]], wanted: float) -> tuple[tuple[int, float], tuple[int, float]]:
    """The last point above the wanted bias, and the next one, which is below."""
    last = max(k for k, (_, bias) in enumerate(points) if bias > wanted)
    return points[last], points[last + 1]


def _beyond_grid(n: int, bias: float, wanted: float, order: int) -> RequiredN:
    """bias ∝ n^−order from the last size on."""
    log_n = math.log(n) + (math.log(bias) - math.log(wanted)) / order if wanted > 0 else math.inf
    return RequiredN(math.ceil(math.exp(log_n)) if log_n < math.log(LARGEST) else None, True)


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
    return prepare_diagnosis(
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


def prepare_diagnosis(
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
        return partial(_diagnose_weights, weight_rows(weights), seed)
    settings = read_settings(tau, n, wanted, kernel, seed)
    generator = torch.Generator().manual_seed(seed)
    if distances is not None:
        return partial(_diagnose_sample, input_from_distances(distances, settings, generator), settings, generator)
    assert queries is not None and references is not None  # noqa: PT018  one of the three kinds is there
    return partial(_diagnose_sample, input_from_features(queries, references, generator), settings, generator)


def _diagnose_weights(alpha: Float[Tensor, "rows n"], seed: int) -> Diagnosis:
    rows, n = alpha.shape
    found = summarize_batches(effective_sample_size(alpha), alpha.amax(-1), n)
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
        temperatures=(TemperatureDiagnosis(tau=None, weights=found, dead=_temperature_status(found, pull=1.0)),),
    )


def _diagnose_sample(sample: DiagnosisInput, settings: DiagnosisSettings, generator: torch.Generator) -> Diagnosis:
    queries_used, references_used = sample.used
    which = sample.distinct
    groups = uncertainty.jackknife_groups(which, generator)
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
        temperatures=tuple(
            _diagnose_temperature(tau, seen, sample, settings, groups, generator) for tau, seen in pairs
        ),
    )


def _diagnose_temperature(
    tau: float,
    seen: References,
    sample: DiagnosisInput,
    settings: DiagnosisSettings,
    groups: Int[Tensor, " N"],
    generator: torch.Generator,
) -> TemperatureDiagnosis:
    """One temperature."""
    n, spread = settings.n, float(seen.spread.mean())
    simulated = simulate_batches(seen, n, generator)
    evidence = ReliabilityEvidence(
        distinct=int(sample.distinct.max()) + 1,
        n_eff=Quantiles.of(seen.n_eff(sample.distinct)),
        floor=FLOOR * spread,
    )
    sizes = candidate_sizes(evidence.distinct) if settings.wanted is not None else ()
    estimates, at_sizes = uncertainty.jackknife_estimates(seen, n, groups, sizes)
    wanted = None if settings.wanted is None else settings.wanted * spread
    enough = [
        _precise_enough(seen, *each, sizes, wanted, evidence.floor)
        for each in zip(estimates, at_sizes.tolist(), strict=True)
    ]
    return TemperatureDiagnosis(
        tau=tau,
        weights=simulated.weights,
        spread=spread,
        noise=simulated.noise,
        references_eff=evidence.n_eff,
        pull=seen.pull,
        dead=_temperature_status(simulated.weights, seen.pull),
        biases=tuple(
            _bias(*each, sample.queries, evidence.floor, spread, simulated.noise)
            for each in zip(estimates, enough, strict=True)
        ),
        light=rate_reliability(estimates, float(seen.abc_residual(n).norm(dim=-1).mean()), simulated.weights, evidence),
    )


def _precise_enough(
    seen: References,
    estimate: Estimate,
    found: Sequence[float],
    sizes: Sequence[int],
    wanted: float | None,
    floor: float,
) -> RequiredN:
    """The n for the wanted bias, from the biases that were found at some sizes; those below the floor count as it."""
    if wanted is None:
        return RequiredN(None, False)
    name = estimate.estimator

    def more(n: Sequence[int]) -> list[float]:
        return seen.biases((name,), n)[:, 0, 0].norm(dim=-1).mean(0).clamp_min(floor).tolist()

    return smallest_n(sizes, [max(floor, each) for each in found], wanted, estimator_of(name).bias_order, more)


def _bias(estimate: Estimate, enough: RequiredN, queries: int, floor: float, spread: float, noise: float) -> Bias:
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


def _temperature_status(weights: Weights, pull: float) -> TemperatureStatus | None:
    if weights.dominated >= TOO_COLD:
        return "too cold"
    return "too warm" if pull <= TOO_WARM else None
