"""The gauge: how biased is the centroid of n of your references, can that be believed, and what n would be enough?

| input                           | what is told                                                              |
|---------------------------------|---------------------------------------------------------------------------|
| weights α [..., n]              | n_eff = 1/Σα², the largest α, Σα², how many rows one reference dominates  |
| distances d [Q, N], τ, n        | also the exact bias of Σ α d                                              |
| queries, references, τ, n       | everything                                                                |

Distances and features are read as a pool of which n references are drawn with replacement, as a training step does:

    bias = ‖E[T_n] − T*‖ (`expected_weights`),   spread = √(E‖y − T*‖²),   noise = √(tr Var T_n) (`minibatches`).

The pool is itself a sample, and what matters is the population behind it: the interval comes from leaving out parts of
the references (`leave_out`), and the `light` says whether the estimate is likely within a factor of 2. A temperature is
*too cold* if in 95 % of the minibatches one reference holds more than half of the weight, so that the centroid is the
nearest reference, and *too warm* if T* stays within 1 % of the spread around the mean of all references whatever the
query is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import leave_out, light, needed
from truedrift.bias.diagnosis import AtTemperature, Bias, Dead, Diagnosis, Quantiles, Weights
from truedrift.bias.minibatches import simulate, summary
from truedrift.bias.references import References
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.kernels.distance import pairwise_distance
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.kernels.weights import effective_sample_size
from truedrift.validation import (
    mistake,
    require_choice,
    require_features,
    require_finite,
    require_same_dimension,
    require_temperatures,
    require_weights,
)

ESTIMATORS = ("standard", "abc", "abc2")
TOO_COLD = 0.95
"""Share of minibatches with one dominating reference."""
TOO_WARM = 0.01
"""‖T* − E[y]‖ as a share of the spread."""
MOST_REFERENCES = 100_000
MOST_QUERIES, FEWEST_QUERIES = 200, 16
_WORK = 8e8
"""Queries × references × (D + 128): about 5 s a temperature on two cores."""
_LARGEST_N = 1_000_000


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
    estimators: Sequence[str] = ESTIMATORS,
    seed: int = 0,
) -> Diagnosis:
    """Measure the bias of a centroid from weights, from distances, or from queries and references.

    `tau` is one temperature or several, `n` the references that a centroid sees; weights need neither. `wanted` is the
    bias for which n is searched, as a share of the spread (None: no search). At most 200 queries and 100 000 references
    are used, fewer queries when there are many references; they are drawn with `seed`.
    """
    given = {"weights": weights, "distances": distances, "queries": queries, "references": references}
    source = _source([name for name, value in given.items() if value is not None])
    if weights is not None:
        return _from_weights(weights, seed)
    temperatures, size = _settings(tau, n, wanted, estimators, seed)
    generator = torch.Generator().manual_seed(seed)
    if distances is not None:
        _require_distances(distances)
        require_choice("kernel", kernel, ("laplace", "gaussian"))
        Q, N, D = *distances.shape, None
        rows, columns = _sample(Q, N, 1, generator)
        x, y = torch.zeros(1, 1).double(), distances[rows][:, columns].detach().to("cpu", torch.float64)
    else:
        assert queries is not None
        assert references is not None
        _require_features(queries, references)
        Q, N, D = len(queries), *references.shape
        rows, columns = _sample(Q, N, D, generator)
        x, y = (each.detach().to("cpu", torch.float64) for each in (queries[rows], references[columns]))
    groups = leave_out.groups(len(columns), generator)
    found = tuple(
        _at_temperature(seen, each, size, wanted, tuple(estimators), groups, Q, generator)
        for each, seen in zip(temperatures, _seen(x, y, temperatures, kernel, own=D is None), strict=True)
    )
    return Diagnosis(
        source=source,
        n=size,
        queries=Q,
        queries_used=len(rows),
        references=N,
        references_used=len(columns),
        dimension=D,
        kernel=kernel if isinstance(kernel, str) else getattr(kernel, "__name__", "own"),
        wanted=wanted,
        seed=seed,
        temperatures=found,
    )


def _from_weights(weights: Tensor, seed: int) -> Diagnosis:
    """Rows of α, checked and normalized to the last digit."""
    require_weights("weights", weights)
    alpha = weights.detach().to("cpu", torch.float64).flatten(0, -2) if weights.ndim > 1 else weights.double()[None]
    require_finite(weights=alpha)
    total = alpha.sum(-1, keepdim=True)
    if float(alpha.min()) < 0 or float((total - 1).abs().max()) > 1e-3:
        wrong = int(((alpha.amin(-1) < 0) | ((total.squeeze(-1) - 1).abs() > 1e-3)).sum())
        raise mistake(
            f"weights has {wrong} of {len(alpha)} rows that are negative somewhere or do not sum to 1 within 1e-3",
            "allowed are normalized weights, one row a query",
            "divide each row by its sum, in float32 or wider",
        )
    alpha = alpha / total
    found = summary(effective_sample_size(alpha), alpha.amax(-1), alpha.shape[-1])
    dead: Dead | None = "too cold" if found.dominated >= TOO_COLD else None
    return Diagnosis(
        source="weights",
        n=alpha.shape[-1],
        queries=len(alpha),
        queries_used=len(alpha),
        references=alpha.shape[-1],
        references_used=alpha.shape[-1],
        dimension=None,
        kernel=None,
        wanted=None,
        seed=seed,
        temperatures=(AtTemperature(tau=None, weights=found, dead=dead),),
    )


def _sample(Q: int, N: int, D: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the queries and references that are used: all of them, or a sample in a random order."""
    used = min(N, MOST_REFERENCES)
    most = max(FEWEST_QUERIES, min(MOST_QUERIES, int(_WORK / (used * (D + 128)))))
    rows, columns = (torch.randperm(size, generator=generator) for size in (Q, N))
    return rows[:most].sort().values, columns[:used].sort().values


def _seen(
    x: Tensor, y: Tensor, temperatures: Sequence[float], kernel: str | LogKernel, *, own: bool
) -> Iterator[References]:
    """The references at every temperature; distances are taken once."""
    d = y if own else pairwise_distance(x, y) if isinstance(kernel, str) else None
    for tau in temperatures:
        if d is None:
            minus_log_w = -log_kernel(kernel)(x, y, tau).double()
        else:
            minus_log_w = d / tau if kernel == "laplace" else d.square() / (2 * tau**2)
        require_finite(**{f"the kernel's logarithm at tau = {tau}": minus_log_w})
        yield References.seen(minus_log_w, y, own=own)


def _at_temperature(
    seen: References,
    tau: float,
    n: int,
    wanted: float | None,
    estimators: tuple[str, ...],
    groups: Tensor,
    queries: int,
    generator: torch.Generator,
) -> AtTemperature:
    simulated = simulate(seen, n, generator)
    spread = float(seen.spread.mean())
    estimates = leave_out.estimates(seen, estimators, n, groups, queries)
    sizes = needed.grid(seen.s.shape[-1])
    by_size = seen.biases(estimators, sizes).norm(dim=-1).mean(0).squeeze(0) if wanted is not None else None
    biases = []
    for k, each in enumerate(estimates):
        enough = None
        if by_size is not None and wanted is not None:
            order = estimator_of(each.estimator).bias_order
            more = lambda n, name=each.estimator: seen.biases((name,), n).norm(dim=-1).mean(0).flatten().tolist()  # noqa: E731
            enough = needed.smallest_n(sizes, by_size[k].tolist(), wanted * spread, order, more)
        biases.append(_bias(each, spread, simulated.noise, enough))
    return AtTemperature(
        tau=tau,
        weights=simulated.weights,
        spread=spread,
        noise=simulated.noise,
        references_eff=Quantiles.of(effective_sample_size(seen.alpha)),
        pull=seen.pull,
        dead=_dead(simulated.weights, seen.pull),
        biases=tuple(biases),
        light=light.light(leave_out.evidence(seen, n, groups)),
    )
