"""Bias against n of the field as it is trained, for the row, bidirectional and bidirectional-loo normalizations (new).

The image recipe weights a reference by k_ij/√c_j, with c_j from the same batch; the paper's theorems are about k_ij
alone. Four modes, generated samples and positives from the same distribution (a generator that is nearly done),
τ = 0.2, the query one of the n generated samples, itself not among its negatives. For the row normalization the exact
engine gives the same numbers: n positives, and n − 1 negatives.
"""

from __future__ import annotations

import time

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias import exact_moments_of_several
from truedrift.bias.sampling.sample import Sample
from truedrift.bias.trained_field import ESTIMATORS, FieldSample, trained_field
from truedrift.data import FOUR_MODES
from truedrift.experiments.study import Scale, Setting
from truedrift.field.affinity import NORMALIZATIONS
from truedrift.records import FieldBias, FieldBiases, provenance

TAU = 0.2
POOL_POINTS = 4_000
QUERIES: dict[Scale, int] = {"smoke": 4, "cpu": 40, "paper": 200}
TRIALS: dict[Scale, int] = {"smoke": 200, "cpu": 4_000, "paper": 20_000}
SIZES: dict[Scale, tuple[int, ...]] = {
    "smoke": (8, 16, 32),
    "cpu": (8, 16, 32, 64, 128),
    "paper": (8, 16, 32, 64, 128, 256),
}


def study(setting: Setting) -> FieldBiases:
    """All normalizations, estimators and sides at the scale of the setting."""
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(setting.seed)
    counts = (POOL_POINTS, POOL_POINTS, QUERIES[setting.scale])
    positives, generated, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in counts)
    n, trials = SIZES[setting.scale], TRIALS[setting.scale]
    found = trained_field(
        x,
        positives,
        generated,
        tau=TAU,
        n=n,
        trials=trials,
        seed=setting.seed,
        progress=setting.progress,
        keep=setting.directory,
    )
    exact = _exact(x, positives, generated, n)
    return FieldBiases(
        pool_points=POOL_POINTS,
        queries=len(x),
        trials=trials,
        tau=TAU,
        n=n,
        biases=tuple(
            _bias(normalization, name, side, found[normalization, name], exact)
            for normalization in NORMALIZATIONS
            for name in ESTIMATORS
            for side in ("T_pos", "T_neg", "V")
        ),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _bias(
    normalization: str, name: str, side: str, found: FieldSample, exact: dict[tuple[str, str], Tensor]
) -> FieldBias:
    measured: Sample = getattr(found, side)
    known = exact[name, side] if normalization == "row" else None
    return FieldBias(
        normalization=normalization,
        estimator=name,
        side=side,
        square=tuple(measured.squared.mean(0).tolist()),
        square_error=tuple((measured.squared_error.square().sum(0).sqrt() / len(measured.bias)).tolist()),
        exact=None if known is None else tuple(known.square().sum(-1).mean(0).sqrt().tolist()),
    )


def _exact(
    x: Tensor, positives: Tensor, generated: Tensor, n: tuple[int, ...]
) -> dict[tuple[str, str], Float[Tensor, "Q S D"]]:
    """The bias vectors of the row normalization."""
    pos = exact_moments_of_several(x, positives, tau=TAU, n=n, estimators=ESTIMATORS)
    others = tuple(size - 1 for size in n)
    neg = exact_moments_of_several(x, generated, tau=TAU, n=others, estimators=ESTIMATORS)
    sides = {"T_pos": lambda e: pos[e].bias, "T_neg": lambda e: neg[e].bias, "V": lambda e: pos[e].bias - neg[e].bias}
    return {(name, side): bias(name) for name in ESTIMATORS for side, bias in sides.items()}
