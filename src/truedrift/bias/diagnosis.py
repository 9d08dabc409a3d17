"""What the gauge found: frozen dataclasses of numbers, which go to JSON and come back as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from truedrift.axes import Tensor

Color = Literal["green", "yellow", "red"]
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
        """Of all entries."""
        found = _quantiles(values.flatten().double())
        return cls(p05=found[0], p25=found[1], p50=found[2], p75=found[3], p95=found[4])


def _quantiles(values: Tensor) -> list[float]:
    """By sorting: torch.quantile takes 2²⁴ entries at most."""
    ordered = values.sort().values
    position = torch.tensor(SHARES, dtype=torch.float64) * (len(ordered) - 1)
    below = position.long()
    above = (below + 1).clamp_max(len(ordered) - 1)
    return torch.lerp(ordered[below], ordered[above], position - below).tolist()


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Normalized weights α of rows of n references each: a user's own, or those of simulated minibatches."""

    rows: int
    n: int
    n_eff: Quantiles
    """1/Σα²."""
    dominance: Quantiles
    """The largest α."""
    sum_of_squares: Quantiles
    """Σα²."""
    dominated: float
    """Share of rows in which one reference holds more than half of the weight."""


@dataclass(frozen=True, kw_only=True)
class Bias:
    """‖E[T_n] − T*‖ of one estimator: mean over queries, with a 95 % interval, and its quantiles over queries.

    Where it is not `resolved`, the interval is 0 to the floor (1e-9 of the spread), and of `norm` and what is made of
    it only that they are below that.
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
    """The smallest n from which on the bias is at most the wanted one; None if none was asked for or below 2³¹."""
    needed_is_extrapolated: bool
    """That n is beyond the number of references: a power law, not a measurement."""


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Whether to believe the numbers; `reason` says why not.

    The numbers of its rule are None where it does not apply: too few distinct references, or a bias below the floor.
    """

    color: Color
    reason: str
    noise: float | None = None
    """√(tr Var) of ABC's bias vector over its norm, from leaving out parts of the references."""
    error: float | None = None
    """Standard error of the logarithm of ABC's bias."""
    drift: float | None = None
    """By how much more references would change that logarithm."""
    agreement: float | None = None
    """(3 m_2 g_2 − 2 g_3)/n² over the exact bias of ABC, both of the references at hand."""


@dataclass(frozen=True, kw_only=True)
class TemperatureDiagnosis:
    """Everything at one temperature; None where the input does not tell."""

    tau: float | None
    weights: Weights
    spread: float | None = None
    """√(E‖y − T*‖²) over the references, mean over queries."""
    noise: float | None = None
    """√(tr Var T_n), root mean square over queries, from simulated minibatches."""
    references_eff: Quantiles | None = None
    """1/Σα² over all references, copies taken together: how many of them a query really sees."""
    pull: float | None = None
    """‖T* − E[y]‖ over √(E‖y − E[y]‖²), root mean square over queries: 0 where the query no longer matters."""
    dead: TemperatureStatus | None = None
    biases: tuple[Bias, ...] = ()
    light: Reliability | None = None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The gauge's answer, one entry a temperature."""

    source: Literal["weights", "distances", "features"]
    n: int
    queries: int
    queries_used: int
    references: int
    references_used: int
    references_distinct: int
    """Of those used; copies count once."""
    dimension: int | None
    kernel: str | None
    wanted: float | None
    """The bias that was asked for, as a share of the spread."""
    seed: int
    temperatures: tuple[TemperatureDiagnosis, ...]

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Diagnosis:
        """What `to_json` wrote."""
        fields = json.loads(text)
        temperatures = tuple(_at_temperature(each) for each in fields.pop("temperatures"))
        return cls(**fields, temperatures=temperatures)


def _at_temperature(fields: Mapping[str, Any]) -> TemperatureDiagnosis:
    eff, light = fields["references_eff"], fields["light"]
    return TemperatureDiagnosis(
        **dict(fields)
        | {
            "weights": _with_quantiles(Weights, fields["weights"]),
            "references_eff": eff and Quantiles(**eff),
            "biases": tuple(_with_quantiles(Bias, each) for each in fields["biases"]),
            "light": light and Reliability(**light),
        }
    )


def _with_quantiles(kind: Any, fields: Mapping[str, Any]) -> Any:
    return kind(**{name: Quantiles(**value) if isinstance(value, dict) else value for name, value in fields.items()})
