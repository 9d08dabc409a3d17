"""Calibration of the level of confidence: `diagnose` on samples of simulated populations, against their exact bias.

A population is 20 000 points of a mixture, and its exact bias is the truth. The references are N of them, drawn with
replacement, and the queries are further points of the mixture. The diagnosis gets only references and queries. With
θ̂ for its estimate of the bias of ABC and θ for the truth,

    usable:  θ/2 ≤ θ̂ ≤ 2θ,   and the same for the expansion's (3 m_2 g_2 − 2 g_3)/n² from the references.

The family is difficult on purpose: 1 to 31 clusters of unequal weight and width, near or far from each other, Gaussian
or with heavy tails (Student's t with 3 degrees of freedom), some on the unit sphere; D from 1 to 64; n from 4 to 511; N
from n (at least 16) to 256 n (at most 20 000); τ from twice the median distance down to a 64th of it, where n_eff is
near 1. Seeds below 600 were used to choose the thresholds; the next 300 were drawn afterwards, to measure the rates.

    python tools/confidence_calibration.py docs/results/confidence_calibration.jsonl
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import uncertainty
from truedrift.bias.confidence import Calibration, confidence_level
from truedrift.bias.diagnosis import Level
from truedrift.bias.expected_weights import References
from truedrift.kernels.distance import pairwise_distance
from truedrift.records.provenance import provenance
from truedrift.records.store import append
from truedrift.records.store import read as read_records

POINTS = 20_000
QUERIES = 16
CHOSEN_ON, HELD_OUT = range(600), range(600, 900)
"""Seeds of the populations used to choose the thresholds, and of those used to measure the rates afterwards."""
DIMENSIONS = (1, 2, 4, 8, 16, 64)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One population, one sample of it, and its diagnosis; tuples are for standard, ABC and ABC-2."""

    seed: int
    D: int
    N: int
    n: int
    tau_of_distance: float
    """τ over the median distance of queries to references."""
    n_eff: float
    """Inverse of the mean of Σα² in minibatches of n."""
    truth: tuple[float, ...]
    estimate: tuple[float, ...]
    error: tuple[float, ...]
    noise: tuple[float, ...]
    drift: tuple[float, ...]
    expansion: float
    """Closed form for ABC from the references, divided by the truth."""
    agreement: float
    """Closed form for ABC from the references, divided by the estimate."""


def compute_case(seed: int) -> Case:
    """Compute the case of a seed: its population, sample and settings."""
    generator = torch.Generator().manual_seed(seed)
    D = DIMENSIONS[int(_uniform(generator) * len(DIMENSIONS))]
    points = population(D, POINTS + QUERIES, generator)
    pool, x = points[:POINTS], points[POINTS:]
    n = int(2 ** (2 + 7 * _uniform(generator)))
    N = max(16, min(POINTS, int(n * 2 ** (8 * _uniform(generator)))))
    y = pool[torch.randint(POINTS, (N,), generator=generator)]
    distances = pairwise_distance(x, y)
    share = 2 ** (1 - 7 * _uniform(generator))
    tau = share * float(distances.median())
    truth = References.from_log_weights(-pairwise_distance(x, pool) / tau, pool, per_query=False)
    references = References.from_log_weights(-distances / tau, y, per_query=False)
    true_norms = truth.biases(uncertainty.ESTIMATORS, (n,)).norm(dim=-1).mean(0).flatten().tolist()
    estimates, _ = uncertainty.jackknife_estimates(references, n, uncertainty.random_groups(N, generator))
    expansion = float(references.abc_residual(n).norm(dim=-1).mean())
    drawn = torch.randint(N, (64, n), generator=generator)
    return Case(
        seed=seed,
        D=D,
        N=N,
        n=n,
        tau_of_distance=_short(share),
        n_eff=_short(1 / float((-references.s[:, drawn]).softmax(-1).square().sum(-1).mean())),
        truth=tuple(map(_short, true_norms)),
        estimate=tuple(_short(each.norm) for each in estimates),
        error=tuple(_short(each.log_error) for each in estimates),
        noise=tuple(_short(each.relative_noise) for each in estimates),
        drift=tuple(_short(each.extrapolation) for each in estimates),
        expansion=_short(expansion / true_norms[1]),
        agreement=_short(expansion / estimates[1].norm),
    )


def population(D: int, count: int, generator: torch.Generator) -> Float[Tensor, "count D"]:
    """Draw points from one mixture of the family."""
    clusters = int(2 ** (5 * _uniform(generator)))
    separation = 10 ** (1.3 * _uniform(generator) - 0.5)
    likely = torch.arange(1, clusters + 1).double() ** -(2 * _uniform(generator))
    centers, log_width = (torch.randn(clusters, d, generator=generator).double() for d in (D, 1))
    k = torch.multinomial(likely, count, replacement=True, generator=generator)
    y = torch.randn(count, D, generator=generator).double()
    if _uniform(generator) < 0.3:
        y = y / torch.randn(count, 3, generator=generator).double().square().mean(-1, keepdim=True).sqrt()
    y = separation * centers[k] + (0.5 * log_width[k]).exp() * y
    on_sphere = _uniform(generator) < 0.4 and D >= 8
    return torch.nn.functional.normalize(y, dim=-1) if on_sphere else y


def _uniform(generator: torch.Generator) -> float:
    return float(torch.rand((), generator=generator))


def _short(value: float) -> float:
    """Round to five digits, which keeps the record small."""
    return float(f"{value:.5g}")


def write(path: Path, seeds: Iterable[int]) -> None:
    """Write one case per line, and their provenance as the last line."""
    start = time.perf_counter()
    path.unlink(missing_ok=True)
    for seed in seeds:
        append(path, compute_case(seed))
    append(path, provenance(seed=0, wall_seconds=time.perf_counter() - start))


def read(path: Path) -> list[Case]:
    """Read the cases of a file."""
    return read_records(path, Case)


def level_of(each: Case) -> Level:
    """Return the level of confidence of the case."""
    return confidence_level(
        relative_noise=each.noise[1],
        log_error=each.error[1],
        extrapolation=each.drift[1],
        agreement=each.agreement,
    )


def is_right(each: Case) -> bool:
    """Return whether the estimated bias of ABC is within a factor of 2 of the truth."""
    return _within_2(each.estimate[1] / each.truth[1])


def is_usable(each: Case) -> bool:
    """Return whether both the estimate and the expansion are within a factor of 2 of the truth."""
    return is_right(each) and _within_2(each.expansion)


def _within_2(ratio: float) -> bool:
    return 0.5 <= ratio <= 2


def is_covered(each: Case, *, k: int) -> bool:
    """Return whether the interval of estimator k contains the truth."""
    half = uncertainty.half_width(log_error=each.error[k], extrapolation=each.drift[k], relative_noise=each.noise[k])
    return abs(math.log(each.estimate[k] / each.truth[k])) <= half


def measure(cases: Sequence[Case]) -> Calibration:
    """Return the rates over these cases that the library states."""
    high = [each for each in cases if level_of(each) == "high"]
    usable = [each for each in cases if is_usable(each)]
    return Calibration(
        cases=len(cases),
        usable=_short(len(usable) / len(cases)),
        false_high=_share(high, lambda each: not is_usable(each)),
        usable_called_high=_share(usable, lambda each: level_of(each) == "high"),
        coverage=tuple(_share(cases, partial(is_covered, k=k)) for k in range(3)),
    )


def measure_more(cases: Sequence[Case]) -> dict[str, float]:
    """Return further rates, which are stated in docs/diagnosis.md."""
    unusable = [each for each in cases if not is_usable(each)]
    not_low = [each for each in cases if level_of(each) != "low"]
    right = [each for each in cases if is_right(each)]
    return {
        "unusable cases that have high confidence": _share(unusable, lambda each: level_of(each) == "high"),
        "cases that have high or medium confidence": _share(cases, lambda each: level_of(each) != "low"),
        "cases of high or medium confidence that are not right": _share(not_low, lambda each: not is_right(each)),
        "right cases that have high or medium confidence": _share(right, lambda each: level_of(each) != "low"),
    }


def _share(cases: Sequence[Case], has: Callable[[Case], bool]) -> float:
    return _short(sum(map(has, cases)) / max(1, len(cases)))


def main(path: Path) -> None:
    """Run the calibration, and print the rates of both groups of seeds."""
    write(path, (*CHOSEN_ON, *HELD_OUT))
    cases = read(path)
    for name, seeds in (("chosen on", CHOSEN_ON), ("held out", HELD_OUT)):
        some = [each for each in cases if each.seed in seeds]
        print(name, measure(some), measure_more(some))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
