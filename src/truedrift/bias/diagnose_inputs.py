"""The inputs of `diagnose`, checked: weights, distances, or queries and references, with temperatures and n.

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
from truedrift.bias.checks import is_size, require_seed
from truedrift.bias.expected_weights import References
from truedrift.errors import UserError, read_number, require_choice, short_repr
from truedrift.kernels.distance import pairwise_distance
from truedrift.kernels.kernel import KERNELS, LogKernel, log_kernel
from truedrift.tensor_checks import (
    require_features,
    require_finite,
    require_positive,
    require_same_dimension,
    require_temperature,
)

LARGEST_N = 1_000_000
MOST_TEMPERATURES = 16
MOST_REFERENCES = 100_000
MOST_QUERIES, FEWEST_QUERIES = 48, 16
WORK = 4e8
LARGEST_ENTRY = 1e100
SUM_WITHIN = 1e-3
"""The sum of a row of weights may differ from 1 by this much; by more for coarse dtypes (`weight_rows`)."""
ROUNDING = 8
"""Distances that differ by at most this many eps of the largest distance count as equal."""


BY_DISTANCE = ("laplace", "gaussian")
"""Kernels whose logarithm is computed from distances."""


@dataclass(frozen=True)
class DiagnosisSettings:
    """Temperatures, n, the wanted bias as a fraction of √(E‖y − T*‖²), the kernel, and the seed of the sampling."""

    temperatures: tuple[float, ...]
    n: int
    wanted: float | None
    kernel: str | LogKernel
    seed: int
    generated: int | None = None
    """The number g of generated samples of a batch; None without the push."""


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

    @cached_property
    def distinct(self) -> Int[Tensor, " N"]:
        """The index of each reference among the distinct ones; copies have equal features, or columns of distances."""
        return uncertainty.distinct_index(
            uncertainty.merge_close_values(self.y, self.rounding).mT if self.x is None else self.y
        )

    def references_by_temperature(self, settings: DiagnosisSettings) -> Iterator[References]:
        """Yield the references at each temperature; distances are computed once."""
        kernel, d = settings.kernel, self.y
        by_distance = kernel in BY_DISTANCE
        if self.x is not None and by_distance:
            d = pairwise_distance(self.x, self.y)
        for tau in settings.temperatures:
            if self.x is not None and not by_distance:
                log_w = log_kernel(kernel)(self.x, self.y, tau).detach().to("cpu", torch.float64)
            else:
                log_w = -(d / tau) if kernel == "laplace" else -((d / tau).square() / 2)
            require_finite(**{f"the kernel's logarithm at tau = {tau}": log_w})
            yield References.from_log_weights(log_w, self.y, per_query=self.x is None)


def require_source(**given: Tensor | None) -> None:
    """Require exactly one of the three kinds of input."""
    names = {name for name, value in given.items() if value is not None}
    if names not in ({"weights"}, {"distances"}, {"queries", "references"}):
        allowed = "must have weights, or distances, or queries and references"
        raise UserError(f"the input has {', '.join(sorted(names)) or 'no arrays'}", allowed, "pass one of the three")


def require_no_generated(generated: int | None) -> None:
    """Require that no number of generated samples comes with weights, which do not determine the push."""
    if generated is not None:
        problem = f"is {generated!r} with weights, which do not determine the push of the field"
        allowed = "needs distances, or queries and references"
        raise UserError(problem, allowed, "pass these, or leave it out", field="generated")


def read_settings(
    tau: float | Sequence[float] | None,
    n: int | None,
    wanted: float | None,
    kernel: str | LogKernel,
    seed: int,
    generated: int | None = None,
) -> DiagnosisSettings:
    """Check the settings, for distances and for features."""
    # Temperatures
    temperatures = tuple(tau) if isinstance(tau, (tuple, list)) else (tau,)
    if tau is None or not 1 <= len(temperatures) <= MOST_TEMPERATURES:
        problem = "is missing" if tau is None else f"has {len(temperatures)} temperatures"
        allowed = f"must be 1 to {MOST_TEMPERATURES} temperatures"
        raise UserError(problem, allowed, "pass that of your kernel, for example 0.05", field="tau")
    for each in temperatures:
        require_temperature(each)
    # n, and what is searched
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= LARGEST_N:
        problem = "is missing" if n is None else f"is {short_repr(n)}"
        allowed = f"must be an integer from 1 to {LARGEST_N}"
        raise UserError(problem, allowed, "pass the number of references per centroid", field="n")
    if wanted is not None and not 0 < read_number(wanted) < math.inf:
        allowed = "must be a positive fraction of the spread"
        raise UserError(f"is {short_repr(wanted)}", allowed, "pass for example 0.01", field="wanted")
    if not callable(kernel):
        require_choice("kernel", kernel, KERNELS)
    require_seed(seed)
    # Sizes of both sides of the field
    if generated is not None:
        if not is_size(generated, 3) or generated > LARGEST_N:
            allowed = f"must be an integer from 3 to {LARGEST_N}, for 2 negatives or more"
            fix = "pass the number of generated samples per class of a batch"
            raise UserError(f"is {short_repr(generated)}", allowed, fix, field="generated")
        if n < 2:
            raise UserError(f"is {n}", "must be at least 2 with generated", "use more positives", field="n")
        generated = int(generated)
    wanted = None if wanted is None else float(wanted)
    return DiagnosisSettings(tuple(float(each) for each in temperatures), n, wanted, kernel, seed, generated)


def weight_rows(weights: Tensor) -> Float[Tensor, "rows n"]:
    """Return α with one row per query, normalized to the last digit.

    A row may differ from 1 by max(SUM_WITHIN, 2 eps): 0.0020 for float16, 0.016 for bfloat16. Rounding changes α_i by
    at most eps/2 · α_i and Σα by eps/2, for any n. Dividing by a rounded sum adds as much again. The factor 2 is
    twice the total.
    """
    require_features("weights", weights, "n")
    alpha = weights.detach().to("cpu", torch.float64).reshape(-1, weights.shape[-1])
    require_finite(weights=alpha)
    total = alpha.sum(-1)
    tolerance = max(SUM_WITHIN, 2 * torch.finfo(weights.dtype).eps)
    negative = alpha.amin(-1) < 0
    wrong = negative | ((total - 1).abs() > tolerance)
    if bool(wrong.any()):
        fix = "apply a softmax first: weights = logits.softmax(-1)"
        raise UserError(
            f"{int(wrong.sum())} of {len(alpha)} rows of weights have a negative entry or do not sum to 1",
            f"must be weights [..., n] that sum to 1 within {tolerance:.2g}",
            fix if bool(negative.any()) else f"{fix}, or divide kernel values by their sum",
        )
    return alpha / total.unsqueeze(-1)


def input_from_distances(distances: Tensor, settings: DiagnosisSettings, generator: torch.Generator) -> DiagnosisInput:
    """Check distances [Q, N] and sample rows and columns."""
    if settings.kernel not in BY_DISTANCE:
        allowed = "must be 'laplace' or 'gaussian' for distances"
        raise UserError("needs features", allowed, "pass one of these, or features", field="kernel")
    _require_matrix("distances", distances, "Q, N", 1)
    require_positive("distances", distances, or_zero=True)
    Q, N = distances.shape
    rows, columns = _sample_indices(Q, N, 1, generator)
    chosen = distances[rows][:, columns].detach().to("cpu", torch.float64)
    eps = min(torch.finfo(distances.dtype).eps, torch.finfo(torch.float32).eps)
    return DiagnosisInput(None, chosen, Q, N, ROUNDING * eps * float(chosen.max()))


def input_from_features(queries: Tensor, references: Tensor, generator: torch.Generator) -> DiagnosisInput:
    """Check queries [Q, D] and references [N, D] and sample both."""
    _require_matrix("queries", queries, "Q, D", None)
    _require_matrix("references", references, "N, D", 0)
    require_same_dimension(queries=queries, references=references)
    Q, (N, D) = len(queries), references.shape
    rows, columns = _sample_indices(Q, N, D, generator)
    x, y = (each.detach().to("cpu", torch.float64) for each in (queries[rows], references[columns]))
    return DiagnosisInput(x, y, Q, N)


def _require_matrix(name: str, value: Tensor, axes: str, reference_axis: int | None) -> None:
    """Require a matrix with two references or more, and entries for which every distance / τ is finite."""
    require_features(name, value, axes)
    if value.ndim != 2 or (reference_axis is not None and value.shape[reference_axis] < 2):
        raise UserError(
            f"has shape {list(value.shape)}",
            "must have two dimensions, with 2 references or more",
            "flatten the leading dimensions, or pass more references",
            field=name,
        )
    require_finite(**{name: value})
    largest = float(value.abs().max())
    if largest > LARGEST_ENTRY:
        allowed = f"must be at most {LARGEST_ENTRY:g}"
        raise UserError(f"has an entry of {largest:g}", allowed, "rescale it and tau", field=name)


def _sample_indices(Q: int, N: int, D: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return indices of the queries and references to use."""
    used = min(N, MOST_REFERENCES)
    most = max(FEWEST_QUERIES, min(MOST_QUERIES, int(WORK / (used * (D + 128)))))
    rows, columns = (torch.randperm(size, generator=generator) for size in (Q, N))
    return rows[:most].sort().values, columns[:used].sort().values
