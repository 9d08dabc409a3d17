"""Can another temperature undo the bias? E[T_n(x; τ′)] against T*(x; τ) on the four modes (`app:temperature`).

To first order τ′ = τ + Δ would have to solve ∂T*/∂τ · Δ = g_2/n at every query (`eq:compensation`): both vectors
collinear, and n·Δ one constant. Both are measured. Beyond first order,

    E[T_n(x; τ′)] − T*(x; τ) = {E[T_n(x; τ′)] − T*(x; τ′)} + {T*(x; τ′) − T*(x; τ)}

is computed exactly, and its norm, averaged over queries, is made as small as one τ′ for all can make it, or one τ′ for
each query. E[T_n(x; τ′)] is analytic in log τ′: it is computed at Chebyshev nodes of log τ′/τ and interpolated between.
The interpolant at τ′ = τ is compared with the engine there, which is no node.

n_eff/n = 1/λ, λ = E[w²]/E[w]², is what a lower τ costs.
"""

from __future__ import annotations

import math
import time

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import exact_moments, exact_moments_of_several
from truedrift.bias.theory import compensation, effective_share
from truedrift.data import FOUR_MODES
from truedrift.experiments.study import Setting
from truedrift.records import AtTemperature, Compensated, Temperature, provenance

TEMPERATURES = (0.1, 0.2)
SIZES = (16, 32, 64, 128, 256)
LOWEST_RATIO, HIGHEST_RATIO = 0.3, 1.1
NODES = 11
RATIOS_SOUGHT, RATIOS_KEPT = 3201, 161
TAUS = tuple(float(f"{0.02 * 50 ** (k / 16):.4g}") for k in range(17))
QUANTILES = (0.05, 0.5, 0.95)


def study(setting: Setting) -> Temperature:
    """10⁶ points and 200 queries (`app:toy`), or 5 000 and 20 at `smoke`."""
    start = time.perf_counter()
    points, queries = (5_000, 20) if setting.scale == "smoke" else (1_000_000, 200)
    generator = torch.Generator().manual_seed(setting.seed)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (points, queries))
    at = tuple(_at(x, pool, tau, setting) for tau in TEMPERATURES)
    share = effective_share(x, pool, taus=TAUS)
    low, median, high = share.quantile(torch.tensor(QUANTILES, dtype=torch.float64), dim=0).tolist()
    return Temperature(
        pool_points=points,
        queries=queries,
        ratios=tuple(_ratios(RATIOS_KEPT).tolist()),
        at=at,
        taus=TAUS,
        share_low=tuple(low),
        share_median=tuple(median),
        share_high=tuple(high),
        falls=int((share.diff(dim=-1) <= 0).sum()),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _at(x: Tensor, pool: Tensor, tau: float, setting: Setting) -> AtTemperature:
    here = exact_moments_of_several(x, pool, tau=tau, n=SIZES, estimators=("standard", "abc"))
    standard, abc = here["standard"], here["abc"]
    found = compensation(x, pool, tau=tau)
    means = []
    for k, ratio in enumerate(nodes().tolist()):
        setting.progress(f"app:temperature at τ = {tau:g}", k, NODES)
        there = exact_moments(x, pool, tau=tau * ratio, n=SIZES, estimator="standard")
        means.append(there.T_star.unsqueeze(-2) + there.bias)
    left = torch.stack(means) - standard.T_star.unsqueeze(-2)  # [NODES, Q, len(n), D]
    off = (interpolated(left, torch.ones(1, dtype=torch.float64))[0] - standard.bias).norm(dim=-1)
    return AtTemperature(
        tau=tau,
        shifts=tuple(found.shift.tolist()),
        angles_degrees=tuple(found.cosine.clamp_max(1).acos().rad2deg().tolist()),
        sizes=tuple(_compensated(n, left[:, :, k], standard.bias[:, k], abc.bias[:, k]) for k, n in enumerate(SIZES)),
        interpolation_error=float((off / standard.bias.norm(dim=-1)).max()),
    )


def _compensated(n: int, left: Tensor, standard: Tensor, abc: Tensor) -> Compensated:
    """What is left [NODES, Q, D] at every ratio, and at the best."""
    ratios = _ratios(RATIOS_SOUGHT)
    distance = interpolated(left, ratios).norm(dim=-1)  # [ratios, Q]
    mean = distance.mean(-1)
    best = int(mean.argmin())
    return Compensated(
        n=n,
        standard=float(standard.norm(dim=-1).mean()),
        abc=float(abc.norm(dim=-1).mean()),
        remaining=tuple(mean[:: (RATIOS_SOUGHT - 1) // (RATIOS_KEPT - 1)].tolist()),
        best_ratio=float(ratios[best]),
        best=float(mean[best]),
        own_best=float(distance.amin(0).mean()),
    )


def nodes() -> Float[Tensor, " nodes"]:
    """Ratios τ′/τ whose logarithms are Chebyshev nodes."""
    angle = (torch.arange(NODES, dtype=torch.float64) + 0.5) * (math.pi / NODES)
    low, high = math.log(LOWEST_RATIO), math.log(HIGHEST_RATIO)
    return ((low + high) / 2 - (high - low) / 2 * angle.cos()).exp()


def interpolated(values: Float[Tensor, "nodes ..."], at: Float[Tensor, " ratios"]) -> Float[Tensor, "ratios ..."]:
    """The polynomial in log τ′/τ through the values at `nodes()`, by its Lagrange basis."""
    u = nodes().log()
    others = ~torch.eye(len(u), dtype=torch.bool)
    above = (at.log()[:, None, None] - u).where(others, 1.0).prod(-1)  # [ratios, nodes]
    below = (u[:, None] - u).where(others, 1.0).prod(-1)
    return torch.tensordot(above / below, values, 1)


def _ratios(count: int) -> Tensor:
    return torch.linspace(LOWEST_RATIO, HIGHEST_RATIO, count, dtype=torch.float64)
