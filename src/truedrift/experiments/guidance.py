"""Negatives of classifier-free guidance from two pools: plain against stratified ABC (`guidance`, new).

n_gen generated negatives have weight k(x, y), n_unc unconditional real ones w_u k(x, y), with

    w_u = (a − 1) n_gen / n_unc,   T* = (E_gen[k y] + (a − 1) E_unc[k y]) / (E_gen[k] + (a − 1) E_unc[k]):

the strength a sets the target, whatever the sizes are (G − 1 of G generated samples are a query's negatives). As n_gen
and n_unc are fixed, plain ABC subtracts more than the leading bias, and O(1/n) is left of it; stratified ABC leaves
O(1/n²). Expectations are exact (`bias.strata`), nothing is sampled but the pools and the queries.

The toy: unconditional samples are the four modes; the class is the right half of them, and a generator that is not
there yet makes two wider clusters beside them. Queries are generated samples, as in training.
"""

from __future__ import annotations

import time

import torch

from truedrift.axes import Tensor
from truedrift.bias.strata import exact_bias_of_strata
from truedrift.data import FOUR_MODES, GaussianMixture
from truedrift.experiments.study import Setting
from truedrift.records import AtStrength, Guidance, provenance

GENERATED = GaussianMixture(means=((0.6, 0.4), (0.4, -0.3)), std=0.2)
TAU = 0.2
STRENGTHS = (1.5, 3.0)
GENERATED_PER_UNCONDITIONAL = 2
SIZES = tuple((GENERATED_PER_UNCONDITIONAL * n, n) for n in (2, 4, 8, 16, 32, 64, 128, 256))


def study(setting: Setting) -> Guidance:
    """10⁶ points a pool and 200 queries, as in `app:toy`, or 2 000 and 10 at `smoke`."""
    start = time.perf_counter()
    points, queries = (2_000, 10) if setting.scale == "smoke" else (1_000_000, 200)
    generator = torch.Generator().manual_seed(setting.seed)
    pools = [mixture.sample(points, generator, dtype=torch.float64) for mixture in (GENERATED, FOUR_MODES)]
    x = GENERATED.sample(queries, generator, dtype=torch.float64)
    at = []
    for k, strength in enumerate(STRENGTHS):
        setting.progress("guidance", k, len(STRENGTHS))
        at.append(_at(x, pools, strength))
    return Guidance(
        tau=TAU,
        pool_points=points,
        queries=queries,
        generated_means=tuple((float(a), float(b)) for a, b in GENERATED.means),
        generated_std=GENERATED.std,
        sizes=SIZES,
        at=tuple(at),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _at(x: Tensor, pools: list[Tensor], strength: float) -> AtStrength:
    w_u = (strength - 1) * GENERATED_PER_UNCONDITIONAL
    found = exact_bias_of_strata(x, pools, tau=TAU, n=SIZES, pool_weights=(1.0, w_u))
    norms = {name: each.bias.norm(dim=-1) for name, each in found.items()}
    standard, abc, stratified = (tuple(norm.mean(0).tolist()) for norm in norms.values())
    return AtStrength(
        strength=strength,
        w_u=w_u,
        standard=standard,
        abc=abc,
        stratified=stratified,
        share_nearer=tuple((norms["stratified-abc"] < norms["abc"]).double().mean(0).tolist()),
        relative_error=max(float((found[name].error / norm).max()) for name, norm in norms.items()),
    )
