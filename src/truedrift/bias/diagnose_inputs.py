"""The inputs of `diagnose`, validated: weights, distances, or queries and references, with temperatures and n.

Large inputs are sampled: at most 100 000 references, and as many queries as keep queries × references × (D + 128)
below a budget, but 16 to 48 of them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias import uncertainty
from truedrift.bias.expected_weights import References
from truedrift.errors import (
    UserError,
    require_choice,
    require_features,
    require_finite,
    require_positive,
    require_same_dimension,
    require_temperature,
    require_weights,
)
from truedrift.kernels.distance import pairwise_distance
from truedrift.kernels.kernel import KERNELS, LogKernel, log_kernel

LARGEST_N = 1_000_000
MOST_TEMPERATURES = 16
MOST_REFERENCES = 100_000
MOST_QUERIES, FEWEST_QUERIES = 48, 16
WORK = 4e8
LARGEST_ENTRY = 1e100
SUM_WITHIN = 1e-3
"""The sum of a row of weights may differ from 1 by this much; by more for coarse dtypes (`sum_tolerance`)."""
ROUNDING = 8
"""Distances that differ by at most this many eps of the largest distance count as equal."""
_LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class DiagnosisSettings:
    """Temperatures, n, the wanted bias as a fraction of √(E‖y − T*‖²), the kernel, and the seed of the sampling."""

    temperatures: tuple[float, ...]
    n: int
    wanted: float | None
    kernel: str | LogKernel
    seed: int


@dataclass(frozen=True)
class DiagnosisInput:
    """The sampled queries x [Q, D] and references y [N, D]; or x = None and y = distances [Q, N]."""

    x: Tensor | None
    y: Tensor
    queries: int
    """The number of all queries."""
    references: int
    """The number of all references."""
    rounding: float = 0.0
    """The largest rounding difference between distances to copies of one reference."""

    @property
    def used(self) -> tuple[int, int]:
        """The numbers of queries and references in the sample."""
        return (len(self.y), self.y.shape[1]) if self.x is None else (len(self.x), len(self.y))

    @property
    def dimension(self) -> int | None:
        """D; None for distances."""
        return None if self.x is None else self.y.shape[1]

    @cached_property
    def distinct(self) -> Int[Tensor, " N"]:
        """The index of each reference among the distinct ones; copies have equal features, or columns of distances."""
        return uncertainty.distinct_index(
            uncertainty.merge_close_values(self.y, self.rounding).mT if self.x is None else self.y
        )

    def references_by_temperature(self, settings: DiagnosisSettings) -> Iterator[References]:
        """Yield the references at each temperature; distances are computed once."""
        kernel = settings.kernel
        d = self.y if self.x is None else pairwise_distance(self.x, self.y) if isinstance(kernel, str) else None
        for tau in settings.temperatures:
            log_w = self._log_kernel(kernel, tau) if d is None else _log_kernel_of_distances(d, kernel, tau)
            require_finite(**{f"the kernel's logarithm at tau = {tau}": log_w})
            yield References.from_log_weights(log_w, self.y, per_query=self.x is None)

    def _log_kernel(self, kernel: str | LogKernel, tau: float) -> Tensor:
        assert self.x is not None  # distances have a kernel by name
        return log_kernel(kernel)(self.x, self.y, tau).detach().to("cpu", torch.float64)


def _log_kernel_of_distances(d: Tensor, kernel: str | LogKernel, tau: float) -> Tensor:
    return -(d / tau) if kernel == "laplace" else -((d / tau).square() / 2)


def require_source(**given: Tensor | None) -> None:
    """Require exactly one of the three kinds of input."""
    names = {name for name, value in given.items() if value is not None}
    if names not in ({"weights"}, {"distances"}, {"queries", "references"}):
        raise UserError(
            f"the input has {', '.join(sorted(names)) or 'no arrays'}{_missing_half(names)}",
            "must have weights, or distances, or queries and references",
            "pass one of the three",
        )


def _missing_half(names: set[str]) -> str:
    """Describe what queries or references alone lack."""
    if names == {"queries"}:
        return " but no references"
    return " but no queries" if names == {"references"} else ""


def read_settings(
    tau: float | Sequence[float] | None, n: int | None, wanted: float | None, kernel: str | LogKernel, seed: int
) -> DiagnosisSettings:
    """Validate the settings."""
    temperatures = tuple(tau) if isinstance(tau, (tuple, list)) else (tau,)
    if tau is None or not 1 <= len(temperatures) <= MOST_TEMPERATURES:
        raise UserError(
            "is missing" if tau is None else f"has {len(temperatures)} temperatures",
            f"must be 1 to {MOST_TEMPERATURES} temperatures",
            "pass that of your kernel, for example 0.05",
            field="tau",
        )
    for each in temperatures:
        require_temperature(each)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= LARGEST_N:
        raise UserError(
            "is missing" if n is None else f"is {n!r}",
            f"must be an integer from 1 to {LARGEST_N}",
            "pass the number of references of a centroid",
            field="n",
        )
    if wanted is not None and not (isinstance(wanted, (int, float)) and 0 < wanted < math.inf):
        raise UserError(
            f"is {wanted!r}", "must be a positive fraction of the spread", "pass for example 0.01", field="wanted"
        )
    if not callable(kernel):
        require_choice("kernel", kernel, KERNELS)
    require_seed(seed)
    return DiagnosisSettings(tuple(float(each) for each in temperatures), n, wanted, kernel, seed)


def require_seed(seed: int) -> None:
    """Require a seed that `torch.Generator` accepts."""
    if not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise UserError(
            f"is {seed!r}", f"must be an integer from 0 to {_LARGEST_SEED}", "pass for example 0", field="seed"
        )


def weight_rows(weights: Tensor) -> Float[Tensor, "rows n"]:
    """Return α with one row per query, normalized to the last digit."""
    require_weights("weights", weights)
    alpha = weights.detach().to("cpu", torch.float64).reshape(-1, weights.shape[-1])
    require_finite(weights=alpha)
    total = alpha.sum(-1)
    tolerance = sum_tolerance(weights.dtype)
    wrong = (alpha.amin(-1) < 0) | ((total - 1).abs() > tolerance)
    if bool(wrong.any()):
        raise UserError(
            f"{int(wrong.sum())} of {len(alpha)} rows of weights have a negative entry or do not sum to 1",
            f"must be weights [..., n] that sum to 1 within {tolerance:.2g}",
            "divide each row by its sum",
        )
    return alpha / total.unsqueeze(-1)


def sum_tolerance(dtype: torch.dtype) -> float:
    """Return max(SUM_WITHIN, 2 eps): 0.0020 for float16, 0.016 for bfloat16.

    Rounding changes α_i by at most eps/2 · α_i and Σα by eps/2, whatever n is. Dividing by a rounded sum adds as much
    again. The factor 2 is twice the total.
    """
    return max(SUM_WITHIN, 2 * torch.finfo(dtype).eps)


def input_from_distances(distances: Tensor, settings: DiagnosisSettings, generator: torch.Generator) -> DiagnosisInput:
    """Validate distances [Q, N] and sample rows and columns."""
    if callable(settings.kernel):
        raise UserError(
            "is a function of features", "must be 'laplace' or 'gaussian' for distances", "pass a name", field="kernel"
        )
    require_features("distances", distances, "Q, N")
    _require_matrix("distances", distances)
    _require_moderate("distances", distances)
    require_positive("distances", distances, or_zero=True)
    Q, N = distances.shape
    rows, columns = _sample_indices(Q, N, 1, generator)
    chosen = distances[rows][:, columns].detach().to("cpu", torch.float64)
    eps = min(torch.finfo(distances.dtype).eps, torch.finfo(torch.float32).eps)
    return DiagnosisInput(None, chosen, Q, N, ROUNDING * eps * float(chosen.max()))


def input_from_features(queries: Tensor, references: Tensor, generator: torch.Generator) -> DiagnosisInput:
    """Validate queries [Q, D] and references [N, D] and sample both."""
    for name, value, axes in (("queries", queries, "Q, D"), ("references", references, "N, D")):
        require_features(name, value, axes)
        _require_matrix(name, value)
        _require_moderate(name, value)
    require_same_dimension(queries=queries, references=references)
    Q, (N, D) = len(queries), references.shape
    rows, columns = _sample_indices(Q, N, D, generator)
    x, y = (each.detach().to("cpu", torch.float64) for each in (queries[rows], references[columns]))
    return DiagnosisInput(x, y, Q, N)


def _require_matrix(name: str, value: Tensor) -> None:
    if value.ndim != 2 or (name != "queries" and value.shape[1 if name == "distances" else 0] < 2):
        raise UserError(
            f"has shape {list(value.shape)}",
            "must have two dimensions, with 2 references or more",
            "flatten the leading dimensions, or pass more references",
            field=name,
        )


def _require_moderate(name: str, value: Tensor) -> None:
    """Require entries that are finite, and small enough for every distance / τ to be finite."""
    require_finite(**{name: value})
    if float(value.abs().max()) > LARGEST_ENTRY:
        largest = float(value.abs().max())
        raise UserError(
            f"has an entry of {largest:g}", f"must be at most {LARGEST_ENTRY:g}", "rescale it and tau", field=name
        )


def _sample_indices(Q: int, N: int, D: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return indices of the queries and references to use."""
    used = min(N, MOST_REFERENCES)
    most = max(FEWEST_QUERIES, min(MOST_QUERIES, int(WORK / (used * (D + 128)))))
    rows, columns = (torch.randperm(size, generator=generator) for size in (Q, N))
    return rows[:most].sort().values, columns[:used].sort().values
