"""What a user gives the gauge, checked: weights, distances, or queries and references, with temperatures and n.

Large inputs are sampled: at most 100 000 references, and as many queries as keep queries × references × (D + 128)
below a budget, but 16 to 48 of them.
"""

from __future__ import annotations

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
"""Rows of weights may miss 1 by this much, by rounding; by more where the dtype is coarse (`sum_within`)."""
ROUNDING = 8
"""Distances that differ by this many eps of the largest are the same."""
_LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class DiagnosisSettings:
    """Temperatures, n, the wanted bias as a share of the spread, and the seed of everything that is sampled."""

    temperatures: tuple[float, ...]
    n: int
    wanted: float | None
    kernel: str | LogKernel
    seed: int


@dataclass(frozen=True)
class DiagnosisInput:
    """The queries x [Q, D] and references y [N, D] that are used; or y = distances [Q, N] and no queries."""

    x: Tensor | None
    y: Tensor
    queries: int
    """Of which `used` are in the sample."""
    references: int
    rounding: float = 0.0
    """By which distances of copies may differ."""

    @property
    def used(self) -> tuple[int, int]:
        """(queries, references)."""
        return (len(self.y), self.y.shape[1]) if self.x is None else (len(self.x), len(self.y))

    @property
    def dimension(self) -> int | None:
        """D; None for distances."""
        return None if self.x is None else self.y.shape[1]

    @cached_property
    def distinct(self) -> Int[Tensor, " N"]:
        """Which of the distinct references each one is: copies have the same features, or columns of distances."""
        return uncertainty.count_distinct(
            uncertainty.jackknife_levels(self.y, self.rounding).mT if self.x is None else self.y
        )

    def seen(self, settings: DiagnosisSettings) -> Iterator[References]:
        """The references at one temperature after another; distances are taken once."""
        own, kernel = self.x is None, settings.kernel
        d = self.y if self.x is None else pairwise_distance(self.x, self.y) if isinstance(kernel, str) else None
        for tau in settings.temperatures:
            minus_log_w = self._of_kernel(kernel, tau) if d is None else _of_distances(d, kernel, tau)
            require_finite(**{f"the kernel's logarithm at tau = {tau}": minus_log_w})
            yield References.seen(minus_log_w, self.y, own=own)

    def _of_kernel(self, kernel: str | LogKernel, tau: float) -> Tensor:
        assert self.x is not None  # distances have a kernel by name
        return -log_kernel(kernel)(self.x, self.y, tau).detach().to("cpu", torch.float64)


def _of_distances(d: Tensor, kernel: str | LogKernel, tau: float) -> Tensor:
    return d / tau if kernel == "laplace" else (d / tau).square() / 2


def require_source(**given: Tensor | None) -> None:
    """Exactly one of the three kinds of input."""
    names = {name for name, value in given.items() if value is not None}
    if names not in ({"weights"}, {"distances"}, {"queries", "references"}):
        raise UserError(
            f"given are {', '.join(sorted(names)) or 'no arrays'}" + _drop_own_columns(names),
            "allowed are weights, or distances, or queries and references",
            "pass one of the three",
        )


def _drop_own_columns(names: set[str]) -> str:
    """What one half of features lacks."""
    if names == {"queries"}:
        return ", and references are missing"
    return ", and queries are missing" if names == {"references"} else ""


def read_settings(
    tau: float | Sequence[float] | None, n: int | None, wanted: float | None, kernel: str | LogKernel, seed: int
) -> DiagnosisSettings:
    """Checked; temperatures as a tuple."""
    temperatures = tuple(tau) if isinstance(tau, (tuple, list)) else (tau,)
    if tau is None or not 1 <= len(temperatures) <= MOST_TEMPERATURES:
        came = "tau is missing" if tau is None else f"tau has {len(temperatures)} temperatures"
        raise UserError(came, f"allowed are 1 to {MOST_TEMPERATURES}", "pass that of your kernel, for example 0.05")
    for each in temperatures:
        require_temperature(each)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= LARGEST_N:
        came = "n is missing" if n is None else f"n is {n!r}"
        raise UserError(
            came, f"allowed is an integer from 1 to {LARGEST_N}", "pass how many references a centroid sees"
        )
    if wanted is not None and not (isinstance(wanted, (int, float)) and 0 < wanted < math.inf):
        raise UserError(f"wanted is {wanted!r}", "allowed is a positive share of the spread", "pass for example 0.01")
    if not callable(kernel):
        require_choice("kernel", kernel, KERNELS)
    require_seed(seed)
    return DiagnosisSettings(tuple(float(each) for each in temperatures), n, wanted, kernel, seed)


def require_seed(seed: int) -> None:
    """What a generator takes."""
    if not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise UserError(f"seed is {seed!r}", f"allowed is 0 to {_LARGEST_SEED}", "take for example 0")


def weight_rows(weights: Tensor) -> Float[Tensor, "rows n"]:
    """α, one row a query, normalized to the last digit."""
    require_weights("weights", weights)
    alpha = weights.detach().to("cpu", torch.float64).reshape(-1, weights.shape[-1])
    require_finite(weights=alpha)
    total = alpha.sum(-1)
    within = sum_within(weights.dtype)
    wrong = (alpha.amin(-1) < 0) | ((total - 1).abs() > within)
    if bool(wrong.any()):
        raise UserError(
            f"{int(wrong.sum())} of {len(alpha)} rows of weights have a negative entry or do not sum to 1",
            f"allowed are normalized weights [..., n], to {within:.2g}",
            "divide each row by its sum",
        )
    return alpha / total.unsqueeze(-1)


def sum_within(dtype: torch.dtype) -> float:
    """max(SUM_WITHIN, 2 eps): 0.0020 for float16, 0.016 for bfloat16.

    Rounding α_i moves it by eps/2 · α_i at most and Σα by eps/2, whatever n is; weights that were divided by a rounded
    sum miss by as much again. The factor 2 is twice that.
    """
    return max(SUM_WITHIN, 2 * torch.finfo(dtype).eps)


def input_from_distances(distances: Tensor, settings: DiagnosisSettings, generator: torch.Generator) -> DiagnosisInput:
    """Some rows and columns."""
    if callable(settings.kernel):
        raise UserError(
            "kernel is a function of features", "allowed for distances are laplace and gaussian", "name one"
        )
    require_features("distances", distances, "Q, N")
    _require_matrix("distances", distances)
    _require_moderate("distances", distances)
    require_positive("distances", distances, or_zero=True)
    Q, N = distances.shape
    rows, columns = _choose_queries(Q, N, 1, generator)
    chosen = distances[rows][:, columns].detach().to("cpu", torch.float64)
    eps = min(torch.finfo(distances.dtype).eps, torch.finfo(torch.float32).eps)
    return DiagnosisInput(None, chosen, Q, N, ROUNDING * eps * float(chosen.max()))


def input_from_features(queries: Tensor, references: Tensor, generator: torch.Generator) -> DiagnosisInput:
    """Some queries and references."""
    for name, value, axes in (("queries", queries, "Q, D"), ("references", references, "N, D")):
        require_features(name, value, axes)
        _require_matrix(name, value)
        _require_moderate(name, value)
    require_same_dimension(queries=queries, references=references)
    Q, (N, D) = len(queries), references.shape
    rows, columns = _choose_queries(Q, N, D, generator)
    x, y = (each.detach().to("cpu", torch.float64) for each in (queries[rows], references[columns]))
    return DiagnosisInput(x, y, Q, N)


def _require_matrix(name: str, value: Tensor) -> None:
    if value.ndim != 2 or (name != "queries" and value.shape[1 if name == "distances" else 0] < 2):
        raise UserError(
            f"{name} has shape {list(value.shape)}",
            "allowed is two dimensions, with 2 references or more",
            "flatten the leading ones, or leave out what has a single reference",
        )


def _require_moderate(name: str, value: Tensor) -> None:
    """Finite, and so is every distance over every temperature."""
    require_finite(**{name: value})
    if float(value.abs().max()) > LARGEST_ENTRY:
        largest = float(value.abs().max())
        raise UserError(
            f"{name} has an entry of {largest:g}", f"allowed is up to {LARGEST_ENTRY:g}", "rescale it and tau"
        )


def _choose_queries(Q: int, N: int, D: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of queries and references."""
    used = min(N, MOST_REFERENCES)
    most = max(FEWEST_QUERIES, min(MOST_QUERIES, int(WORK / (used * (D + 128)))))
    rows, columns = (torch.randperm(size, generator=generator) for size in (Q, N))
    return rows[:most].sort().values, columns[:used].sort().values
