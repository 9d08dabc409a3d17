"""γ·y of every estimator against its definition, computed reference by reference in `oracles.centroids`."""

import math

import pytest
import torch
from oracles import centroids as literal

from truedrift.centroids import ABC, ABC2, BRSNIS, Bootstrap, Jackknife, Standard, StratifiedABC, abc_weights

INF = math.inf
D = 3
ONE_ROUNDING = {"rtol": 1e-12, "atol": 1e-13}
FIXED_POOL = {
    "standard": (Standard(), literal.standard),
    "abc": (ABC(), literal.abc),
    "abc2": (ABC2(), literal.abc2),
    "jackknife": (Jackknife(), literal.jackknife),
}
fixed_pool = pytest.mark.parametrize(("each", "definition"), FIXED_POOL.values(), ids=FIXED_POOL)


def rows(B, n, spread, masked=True, seed=0):
    """Return log-weights [B, n] and references [n, D]; about a third of the entries are masked, never the first."""
    generator = torch.Generator().manual_seed(seed)
    log_w = -spread * torch.rand(B, n, generator=generator, dtype=torch.float64)
    y = torch.randn(n, D, generator=generator, dtype=torch.float64) + 2
    if masked:
        drop = torch.rand(B, n, generator=generator) < 0.3
        drop[:, 0] = False
        log_w = log_w.masked_fill(drop, -INF)
    return log_w, y


def used(log_w):
    """Return (indices, log-weights) of the references of a row that are not masked."""
    kept = [i for i, value in enumerate(log_w.tolist()) if value > -INF]
    return kept, [float(log_w[i]) for i in kept]


@fixed_pool
@pytest.mark.parametrize("spread", [0.5, 5, 100, 1e4])
@pytest.mark.parametrize("n", [1, 2, 7, 33])
def test_centroid_matches_its_definition(each, definition, n, spread):
    log_w, y = rows(9, n, spread)
    T = each.reweight(log_w) @ y
    for row, result in zip(log_w, T, strict=True):
        kept, weights = used(row)
        torch.testing.assert_close(result, definition(weights, y[kept]), **ONE_ROUNDING)


@fixed_pool
def test_two_equal_references_dominate(each, definition):
    """Two references share the largest weight, which some estimators treat separately."""
    log_w, y = rows(1, 5, 3, masked=False)
    log_w[0, 1] = log_w[0, 3] = 50
    torch.testing.assert_close(each.reweight(log_w)[0] @ y, definition(log_w[0].tolist(), y), **ONE_ROUNDING)


def test_abc_weights_match_the_formula():
    alpha = rows(6, 8, 4, masked=False)[0].softmax(-1)
    for row, gamma in zip(alpha.tolist(), abc_weights(alpha).tolist(), strict=True):
        p_2 = math.fsum(a * a for a in row)
        assert gamma == pytest.approx([a * (1 - p_2) + a**2 for a in row], rel=1e-14)


def test_abc2_weights_match_the_formula():
    alpha = rows(6, 8, 4, masked=False)[0].softmax(-1)
    for row, gamma in zip(alpha.tolist(), abc_weights(alpha, order=2).tolist(), strict=True):
        p_2, p_3 = math.fsum(a**2 for a in row), math.fsum(a**3 for a in row)
        expected = [a * (1 - p_2 + 3 * p_2**2 - 2 * p_3 + (1 - 3 * p_2) * a + 2 * a**2) for a in row]
        assert gamma == pytest.approx(expected, rel=1e-13)


STRATA = {
    "two": [0, 1, 1, 0, 1, 1, 1],
    "three, unordered ids": [7, -2, 7, 4, 4, 7, -2],
    "one": [3] * 7,
    "each its own": list(range(7)),
}


@pytest.mark.parametrize("strata", STRATA.values(), ids=STRATA)
@pytest.mark.parametrize("spread", [0.5, 5, 1e3])
def test_stratified_abc_matches_its_definition(strata, spread):
    """n_s counts the members that are not masked; a stratum of which all are masked contributes nothing."""
    log_w, y = rows(20, 7, spread)
    log_w[0, torch.tensor(strata) == strata[-1]] = -INF if len(set(strata)) > 1 else -1.0  # one stratum is empty
    log_w[0, 0] = 0.0 if strata[0] != strata[-1] or len(set(strata)) == 1 else log_w[0, 0]
    T = StratifiedABC(torch.tensor(strata)).reweight(log_w) @ y
    for row, result in zip(log_w, T, strict=True):
        kept, weights = used(row)
        expected = literal.stratified(weights, y[kept], [strata[i] for i in kept])
        torch.testing.assert_close(result, expected, **ONE_ROUNDING)


def test_one_stratum_is_plain_abc():
    log_w, _ = rows(5, 7, 5)
    gamma = StratifiedABC(torch.zeros(7, dtype=torch.long)).reweight(log_w)
    torch.testing.assert_close(gamma, ABC().reweight(log_w), rtol=1e-13, atol=1e-16)
    assert not torch.allclose(StratifiedABC(torch.arange(7) % 2).reweight(log_w), gamma, rtol=1e-3)


def test_stratified_weights_from_alpha_need_the_mask_to_count():
    """A weight of zero does not show whether a reference was drawn: n_s is 4 without the mask, 2 with it."""
    log_w = torch.tensor([0.0, -1.0, -INF, -INF, -0.3, -2.0], dtype=torch.float64)
    alpha, strata = log_w.softmax(-1), torch.tensor([0, 0, 0, 0, 1, 1])
    counted = abc_weights(alpha, strata=strata, mask=log_w > -INF)
    torch.testing.assert_close(counted, StratifiedABC(strata).reweight(log_w), rtol=1e-14, atol=0)
    assert not torch.allclose(abc_weights(alpha, strata=strata), counted, rtol=1e-3)


def test_stratified_weights_in_float32_where_one_weight_dominates():
    """1 − p_2 cancels: in float32, or with the rounding error of Σα, the small weights would lose digits.

    One stratum is ABC: γ = α (1 − p_2 + α) with p_2 of the α that sum to 1.
    """
    alpha = torch.cat((torch.zeros(1), torch.linspace(-13, -12, 399))).softmax(-1)
    gamma = abc_weights(alpha, strata=torch.zeros(400, dtype=torch.long))[1:].double()
    a = alpha.double() / alpha.double().sum()
    exact = (alpha.double() * (1 - a.square().sum() + a))[1:]
    assert float(((gamma - exact) / exact).abs().max()) <= 3 * 2.0**-24


@pytest.mark.parametrize("spread", [1, 50, 1e3])
def test_bootstrap_matches_its_definition(spread):
    log_w, y = rows(4, 9, spread)
    each = Bootstrap(resamples=30)
    T = each.reweight(log_w, torch.Generator().manual_seed(3)) @ y
    counts = each._counts(log_w > -INF, torch.float64, torch.Generator().manual_seed(3))
    for b, row in enumerate(log_w):
        kept, weights = used(row)
        resamples = [[i for i, j in enumerate(kept) for _ in range(int(count[j]))] for count in counts[:, b]]
        assert {len(drawn) for drawn in resamples} == {len(kept)}
        torch.testing.assert_close(T[b], literal.bootstrap(weights, y[kept], resamples), **ONE_ROUNDING)


@pytest.mark.parametrize(("iterations", "burn_in"), [(1, 0), (4, 0), (4, 1), (4, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_br_snis_matches_its_definition(iterations, burn_in, masked):
    B, n = 12, 5
    log_w, y = rows(B, iterations * (n - 1) + 1, 4, masked=masked)
    if masked:
        log_w[0, 0] = -INF  # the first state
        log_w[1, : n + 3] = -INF  # the whole first pool and more
        log_w[1, -1] = 0
    each = BRSNIS(iterations=iterations, burn_in=burn_in)
    T = each.reweight(log_w, torch.Generator().manual_seed(5)) @ y
    same = torch.Generator().manual_seed(5)
    clocks = torch.stack(
        [torch.empty(B, n, dtype=torch.float64).exponential_(generator=same) for _ in range(iterations)]
    )
    for b in range(B):
        expected = literal.br_snis(log_w[b].tolist(), y, clocks[:, b], burn_in)
        torch.testing.assert_close(T[b], expected, **ONE_ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_abc_weights_of_half_precision_are_rounded_once(dtype):
    """γ in the format of α: the error is that of one rounding, not of every step of the formula."""
    alpha = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)).softmax(-1).to(dtype)
    gamma, wide = abc_weights(alpha), alpha.double()
    exact = wide * (1 - wide.square().sum(-1, keepdim=True) + wide)
    assert gamma.dtype is dtype
    assert float((gamma.double() / exact - 1).abs().max()) <= torch.finfo(dtype).eps / 2
