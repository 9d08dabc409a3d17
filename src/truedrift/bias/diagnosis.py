"""The result of `diagnose`: frozen dataclasses of numbers, which can be written as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from truedrift.axes import Tensor
from truedrift.summary import list_numbers

Level = Literal["high", "medium", "low"]
TemperatureStatus = Literal["too cold", "too warm"]
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """The 5, 25, 50, 75 and 95 % quantiles."""

    p05: float
    p25: float
    p50: float
    p75: float
    p95: float

    @classmethod
    def of(cls, values: Tensor) -> Quantiles:
        """Compute the quantiles of all entries by sorting, because torch.quantile accepts at most 2²⁴ entries."""
        ordered = values.flatten().double().sort().values
        position = torch.tensor(SHARES, dtype=torch.float64) * (len(ordered) - 1)
        below = position.long()
        above = (below + 1).clamp_max(len(ordered) - 1)
        p05, p25, p50, p75, p95 = torch.lerp(ordered[below], ordered[above], position - below).tolist()
        return cls(p05=p05, p25=p25, p50=p50, p75=p75, p95=p95)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Statistics of rows of n normalized weights α: those of the user, or of simulated minibatches."""

    rows: int
    n: int
    n_eff: Quantiles
    """1/Σα²."""
    dominance: Quantiles
    """The largest α."""
    sum_of_squares: Quantiles
    """Σα²."""
    dominated: float
    """Fraction of rows in which one reference holds more than half of the weight."""


@dataclass(frozen=True, kw_only=True)
class Bias:
    """‖E[T_n] − T*‖ of one estimator: mean over queries, with a 95 % interval, and its quantiles over queries.

    If it is not `resolved`, the interval is 0 to the floor (1e-9 of the spread), and `norm` and the numbers derived
    from it are only known to be below that.
    """

    estimator: str
    norm: float
    low: float
    high: float
    resolved: bool
    quantiles: Quantiles
    of_spread: float
    of_noise: float
    needed_n: int | None
    """The smallest n from which the bias stays at or below the wanted one; None if not searched or above 2³¹."""
    needed_is_extrapolated: bool
    """Whether that n is above the number of references, and therefore extrapolated by a power law."""


@dataclass(frozen=True, kw_only=True)
class Push:
    """‖F_n − F_m‖ of one estimator, where F_k = E[T_k]: the mean field of n positives and m negatives at q = p.

    Matched references have no push. If it is not `resolved`, it is only known to be below 1e-9 of the spread.
    """

    estimator: str
    norm: float
    """Mean over queries."""
    resolved: bool
    quantiles: Quantiles
    """Over queries."""
    outward: float
    """The component of F_n − F_m along T* − E[y], mean over queries. If it is positive, samples become too wide."""
    noise: float
    """√(tr Var T_n) of this estimator, root mean square over queries, from simulated minibatches."""
    of_spread: float
    of_noise: float
    matched_noise_ratio: float | None
    """√(tr Var V) with matched references over that without, from the same minibatches; None if it takes too long."""


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """Whether the estimated biases can be trusted: a level, and a `reason` in one line.

    The other numbers are None if the rule does not apply: too few distinct references, or a bias below the floor.
    """

    level: Level
    reason: str
    noise: float | None = None
    """√(tr Var) of ABC's bias vector over its norm, from leaving out parts of the references."""
    error: float | None = None
    """Standard error of the logarithm of ABC's bias."""
    drift: float | None = None
    """The estimated change of that logarithm with more references."""
    agreement: float | None = None
    """(3 m_2 g_2 − 2 g_3)/n² over the exact bias of ABC, both from the same references."""


@dataclass(frozen=True, kw_only=True)
class TemperatureDiagnosis:
    """The diagnosis at one temperature; fields are None if the input does not determine them."""

    tau: float | None
    weights: Weights
    spread: float | None = None
    """√(E‖y − T*‖²) over the references, mean over queries."""
    noise: float | None = None
    """√(tr Var T_n), root mean square over queries, from simulated minibatches."""
    references_eff: Quantiles | None = None
    """1/Σα² over all references, copies counted together: the effective number of references of a query."""
    pull: float | None = None
    """‖T* − E[y]‖ over √(E‖y − E[y]‖²), root mean square over queries: 0 if the query has no influence."""
    dead: TemperatureStatus | None = None
    biases: tuple[Bias, ...] = ()
    confidence: Confidence | None = None
    """Whether the biases can be trusted."""
    advice: str = ""
    """What the bias is and what to do about it, in a sentence or two."""
    pushes: tuple[Push, ...] = ()
    """For standard and ABC, if the number of generated samples is known."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The result of `diagnose`, with one entry per temperature."""

    source: Literal["weights", "distances", "features"]
    n: int
    queries: int
    queries_used: int
    references: int
    references_used: int
    references_distinct: int
    """The number of distinct references among those used."""
    dimension: int | None
    kernel: str | None
    wanted: float | None
    """The bias for which n was searched, as a fraction of the spread."""
    seed: int
    temperatures: tuple[TemperatureDiagnosis, ...]
    generated: int | None = None
    """The number g of generated samples of a batch, each with m = g − 1 negatives; None if it was not given."""
    window: int | None = None
    """s = min(n, m), the number of references per window with matched references."""
    push_advice: str | None = None
    """What to do about the push, in one sentence."""

    @property
    def advice(self) -> str:
        """What to do about the bias at each temperature, and about the push if it was measured."""
        return " ".join(filter(None, (*(at.advice for at in self.temperatures), self.push_advice)))

    def __repr__(self) -> str:
        taus = list_numbers(each.tau for each in self.temperatures if each.tau is not None)
        head = f"Diagnosis(source={self.source!r}, n={self.n}, queries={self.queries}, references={self.references})"
        n_eff = f"median n_eff {list_numbers(each.weights.n_eff.p50 for each in self.temperatures)}"
        first = f"{n_eff} at τ = {taus}" if taus else n_eff
        # The bias of each temperature, if it is known.
        biases = [{bias.estimator: bias.of_spread for bias in each.biases} for each in self.temperatures]
        texts = (f"{name} {list_numbers(each[name] for each in biases)}" for name in biases[0])
        second = "; ".join(texts)
        return "\n  ".join((head, first, *([f"bias of the spread: {second}"] if second else [])))

    def to_json(self) -> str:
        """Return the diagnosis as one JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, indent=2)
