"""The push of the drifting field at q = p: what n positives and m ≠ n negatives do to samples that are right already.

Let F_k(x) be the expectation of a centroid of k references drawn from the user's references. A batch of g generated
samples gives each of them m = g − 1 negatives. Where generated and real samples have the same distribution,

    E[V(x)] = F_n(x) − F_m(x),   push = ‖F_n − F_m‖,

which should be 0, because training must end there. F_k − T* comes from `expected_weights`, so the push is exact for
these references. Two numbers say how large it is: its fraction of the spread √(E‖y − T*‖²), and of the noise
√(tr Var T_n) of the same estimator. The noise averages out over steps, and the push does not: a push of 1 % of the
noise equals the noise of a mean over 10 000 minibatches.

**Direction.** A centroid of few references is nearer to E[y] than T* is. With n > m, the negatives are those with few
references, so V points away from E[y] and samples become too wide. With n < m they become too narrow. `outward` is the
component of F_n − F_m along T* − E[y].

**Matched references.** If both centroids are means over windows of s = min(n, m) references (`centroids.matching`),
both expectations are F_s and the push is exactly 0. One of the two centroids is unchanged. With T_L the other one,
L = max(n, m), and W its mean over windows, the noise of the field changes by the factor

    √((tr Var W + tr Var T_s) / (tr Var T_L + tr Var T_s)).

Disjoint windows are independent, so Var W = (s/L) Var T_s for these. The factor is near 1, because Var T_k ≈ Var T_1/k
for large k. All variances come from the same simulated minibatches, whose error mostly cancels in the factor.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from truedrift.axes import Tensor
from truedrift.bias.diagnosis import Push, Quantiles, TemperatureDiagnosis
from truedrift.bias.expected_weights import FLOOR, References
from truedrift.bias.uncertainty import FEWEST_DRAWS, MOST_DRAWS
from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.matching import Windows, window_weights
from truedrift.seeding import stream

ESTIMATORS = ("standard", "abc")
SMALL = 0.01
"""A push below this fraction of the noise is called small."""
_ELEMENTS = 1 << 23
_MOST_WINDOW_ELEMENTS = 1 << 24
"""Upper limit of queries × minibatches × windows × references per window."""


def measure_pushes(references: References, n: int, m: int, seed: int) -> tuple[Push, ...]:
    """Measure the push of n positives and m negatives from the same references, for each estimator.

    Args:
        references: The references at one temperature.
        n: The number of positives.
        m: The number of negatives.
        seed: The seed of the simulated minibatches.

    Returns:
        The pushes of the standard estimator and of ABC.
    """
    # F_n − F_m at every query, and its component along T* − E[y]
    F_n, F_m = references.expectations(ESTIMATORS, (n, m)).unbind(2)  # [Q, estimators, D]
    V = F_n - F_m if n != m else torch.zeros_like(F_n)
    norms = V.norm(dim=-1)
    outward = (V * torch.nn.functional.normalize(references.target, dim=-1).unsqueeze(1)).sum(-1)
    # Relative to spread and noise
    spread = float(references.spread.mean())
    pushes = []
    for k, name in enumerate(ESTIMATORS):
        norm = float(norms[:, k].mean())
        noise, matched_noise_ratio = simulate_noise(references, name, n, m, seed)
        pushes.append(
            Push(
                estimator=name,
                norm=norm,
                resolved=norm > FLOOR * spread,
                quantiles=Quantiles.of(norms[:, k]),
                outward=float(outward[:, k].mean()),
                noise=noise,
                of_spread=divide_or_zero(norm, spread),
                of_noise=divide_or_zero(norm, noise),
                matched_noise_ratio=matched_noise_ratio,
            )
        )
    return tuple(pushes)


class Noise(NamedTuple):
    """√(tr Var T_n), and √(tr Var V) with matched references over that without, None if it was not computed."""

    centroid: float
    matched_ratio: float | None


def simulate_noise(references: References, name: str, n: int, m: int, seed: int) -> Noise:
    """Simulate up to 256 minibatches of max(n, m) references, fewer if they are large, for one estimator.

    Both estimators and all temperatures have the same draws. The smaller side uses the first min(n, m) of them.
    """
    # Choose how many minibatches to simulate, how many of them with windows, and how many at a time
    (Q, N), largest, s = references.s.shape, max(n, m), min(n, m)
    windows, estimator = Windows(largest, s), estimator_of(name)
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, _ELEMENTS // largest))
    per_draw = Q * (largest if windows.are_blocks or windows.leave_one_out else windows.count * s)
    windowed = min(draws, _MOST_WINDOW_ELEMENTS // per_draw)
    width = Q + (0 if references.per_query else references.y.shape[-1])
    at_a_time = max(1, min(_ELEMENTS // (largest * width), _ELEMENTS // per_draw))
    # Compute the centroids of both sides, and the mean over windows
    generator = stream(seed, "push")
    T_large, T_small = [], []
    W: list[Tensor] = []
    for index in torch.randint(N, (draws, largest), generator=generator).split(at_a_time):
        log_w = -references.s[:, index]  # [Q, draws, largest]
        T_large.append(references.centroids(estimator.reweight(log_w), index))
        T_small.append(references.centroids(estimator.reweight(log_w[..., :s]), index[:, :s]))
        if len(W) * at_a_time < windowed and windowed >= FEWEST_DRAWS:
            W.append(references.centroids(window_weights(log_w, windows, estimator), index))
    larger, smaller = torch.cat(T_large, 1), torch.cat(T_small, 1)
    noise = _mean_variance(larger if n >= m else smaller) ** 0.5
    # Compare the variance of the field with and without windows
    if not W:
        return Noise(noise, None)
    matched = torch.cat(W, 1)
    same = slice(0, matched.shape[1])
    var_matched, var_large, var_small = (_mean_variance(each[:, same]) for each in (matched, larger, smaller))
    if var_large + var_small == 0 or s == largest:
        return Noise(noise, 1.0)
    return Noise(noise, ((var_matched + var_small) / (var_large + var_small)) ** 0.5)


def _mean_variance(T: Tensor) -> float:
    """Return tr Var over minibatches of centroids [Q, draws, D], mean over queries."""
    return float(T.var(1).sum(-1).mean())


def write_push_advice(temperatures: Sequence[TemperatureDiagnosis], n: int, m: int) -> str:
    """Say in one sentence what the push is at the temperature where it is largest, and what to do about it.

    Args:
        temperatures: The diagnosis at each temperature, with its pushes.
        n: The number of positives.
        m: The number of negatives.

    Returns:
        The sentence.
    """
    # Equal sizes need nothing
    if n == m:
        return f"{n:,} positives and {m:,} negatives are equally many, so the push at q = p is exactly 0."
    # The push, where it is largest compared with the noise
    worst = max(temperatures, key=lambda at: max(push.of_noise for push in at.pushes))
    standard, abc = worst.pushes
    shares = (
        f"{_format_share(standard.of_noise)} of the centroid's noise "
        f"(ABC {_format_share(abc.of_noise)}, τ = {worst.tau:g})"
    )
    sizes = f"{n:,} positives and {m:,} negatives"
    if max(standard.of_noise, abc.of_noise) < SMALL:
        return f"At q = p, {sizes} push samples by {shares}, which is small; matched=True makes it 0."
    # Its direction, if it has one
    direction = ""
    if abs(standard.outward) > standard.norm / 2:
        direction = "outward " if standard.outward > 0 else "inward "
    # What to do, and what it costs
    cost = ""
    if abc.matched_noise_ratio is not None:
        change = abc.matched_noise_ratio - 1
        amount = f"{change:+.1%}" if abs(change) >= 0.001 else "less than 0.1%"
        cost = f" and changes the noise of the field by {amount}"
    return (
        f"At q = p, {sizes} push samples {direction}by {shares}: pass matched=True, which makes it 0 with windows of "
        f"{min(n, m):,}{cost}, or use {m:,} positives, or {n:,} fresh negatives (fresh_neg)."
    )


def _format_share(share: float) -> str:
    """Format a share with one digit or more that counts."""
    if share >= 1:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= SMALL else f"{100 * share:.1g}%"


def divide_or_zero(a: float, b: float) -> float:
    """Return a/b, and 0 if b is 0: references that are all the same have no spread, no noise and no bias."""
    return a / b if b > 0 else 0.0
