"""Exact bias with strata against enumeration of all draws, exact moments of one pool, theory and Monte Carlo."""

import math

import pytest
import torch
from oracles.enumeration import Pool, expected_bias_of_strata

from truedrift.bias import exact, exact_moments_by_estimator, exact_stratified_bias, power_sums
from truedrift.centroids import ABC, Standard, StratifiedABC

TAU, WEIGHTS = 0.5, (1.0, 2.5)


def pools_of(seed, *sizes, Q=3, D=2):
    """Queries and pools, each pool shifted by its number so that no two are alike."""
    generator = torch.Generator().manual_seed(seed)
    x, *pools = (torch.randn(rows, D, generator=generator, dtype=torch.float64) for rows in (Q, *sizes))
    return x, [pool + 0.4 * k for k, pool in enumerate(pools)]


def log_weights(x, pool, weight):
    return -(pool - x).norm(dim=-1) / TAU + math.log(weight)


def estimators(sizes):
    names = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return Standard(), ABC(), StratifiedABC(names)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 4), (3, 2), (5, 3)])
def test_enumeration_of_all_draws(sizes):
    x, pools = pools_of(sum(sizes), 3, 2)
    found = exact_stratified_bias(x, pools, tau=TAU, n=(sizes,), pool_weights=WEIGHTS, rtol=1e-13)
    for q, query in enumerate(x):
        atoms = [
            Pool(y=y, log_w=log_weights(query, y, weight), p=torch.full((len(y),), 1 / len(y), dtype=torch.float64))
            for y, weight in zip(pools, WEIGHTS, strict=True)
        ]
        for each in estimators(sizes):
            expected = expected_bias_of_strata(*atoms, sizes, each.reweight)
            torch.testing.assert_close(found[each.name].bias[q, 0], expected, rtol=0, atol=1e-12)


def test_the_target_is_the_centroid_of_the_mixture():
    x, pools = pools_of(1, 30, 40)
    sizes = ((4, 2), (8, 4), (3, 9))
    found = exact_stratified_bias(x, pools, tau=TAU, n=sizes, pool_weights=WEIGHTS)["abc"].T_star
    for q, query in enumerate(x):
        for k, n in enumerate(sizes):
            mass = [
                size * log_weights(query, y, weight).exp() / len(y)
                for size, y, weight in zip(n, pools, WEIGHTS, strict=True)
            ]
            expected = torch.cat(mass) @ torch.cat(pools) / torch.cat(mass).sum()
            torch.testing.assert_close(found[q, k], expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(found[:, 0], found[:, 1], rtol=1e-13, atol=1e-13)
    assert (found[:, 0] - found[:, 2]).norm(dim=-1).min() > 1e-2


def test_one_stratum_equals_the_moments_of_one_pool():
    x, (pool,) = pools_of(2, 80)
    n = (1, 3, 50)
    expected = exact_moments_by_estimator(x, pool, tau=TAU, n=n, estimators=("standard", "abc"), rtol=1e-12)
    found = exact_stratified_bias(x, [pool], tau=TAU, n=[(size,) for size in n], rtol=1e-12)
    for name, same in (("standard", "standard"), ("abc", "abc"), ("stratified-abc", "abc")):
        torch.testing.assert_close(found[name].bias, expected[same].bias, rtol=1e-10, atol=1e-13)


def test_a_common_factor_of_the_weights_changes_nothing():
    x, pools = pools_of(3, 50, 20)
    one, other = (
        exact_stratified_bias(x, pools, tau=TAU, n=((4, 2),), pool_weights=weights) for weights in ((1, 3), (7e5, 21e5))
    )
    for name in one:
        torch.testing.assert_close(one[name].bias, other[name].bias, rtol=1e-9, atol=1e-13)


def test_a_kernel_gets_the_points_without_centering():
    """The kernel depends on the origin: y may be centered, but not the points that the kernel gets."""
    x, pools = pools_of(13, 4, 3, Q=2)

    def kernel(x, y, tau):
        return (x @ y.mT + y.square().sum(-1) / 4) / tau

    found = exact_stratified_bias(x, pools, tau=TAU, n=((3, 2),), kernel=kernel, rtol=1e-13)
    for q in range(2):
        atoms = [
            Pool(y=y, log_w=kernel(x[q], y, TAU), p=torch.full((len(y),), 1 / len(y), dtype=torch.float64))
            for y in pools
        ]
        for each in estimators((3, 2)):
            expected = expected_bias_of_strata(*atoms, (3, 2), each.reweight)
            torch.testing.assert_close(found[each.name].bias[q, 0], expected, rtol=0, atol=1e-12)


def test_a_common_offset_keeps_the_accuracy():
    x, pools = pools_of(14, 30, 700)
    here, there = (
        exact_stratified_bias(x + by, [pool + by for pool in pools], tau=TAU, n=((4, 2),))["stratified-abc"]
        for by in (0, 1000)
    )
    torch.testing.assert_close(there.bias, here.bias, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(there.T_star, here.T_star + 1000, rtol=1e-12, atol=0)


def test_histograms_agree_with_the_sum_over_points(monkeypatch):
    """2 × 700 points and an uneven weight, within the error that is reported, which is small."""
    x, pools = pools_of(4, 700, 700, Q=6)
    options = {"tau": TAU, "n": ((2, 1), (16, 8), (200, 100)), "pool_weights": (1.0, 20.0)}
    found = exact_stratified_bias(x, pools, **options)
    monkeypatch.setattr(exact, "POINTS_AS_THEY_ARE", 10**6)
    expected = exact_stratified_bias(x, pools, **options, rtol=1e-10)
    for name, each in found.items():
        off = (each.bias - expected[name].bias).norm(dim=-1)
        assert (off <= each.error).all()
        assert (each.error <= 1e-6 * each.bias.norm(dim=-1) + 1e-12).all()
        torch.testing.assert_close(each.T_star, expected[name].T_star, rtol=1e-7, atol=1e-8)


def test_the_reported_error_is_not_exceeded(monkeypatch):
    """20 random pairs of pools on histograms; the true error is from plain sums."""
    generator = torch.Generator().manual_seed(12)
    exceeded = total = 0
    for k in range(20):
        sizes = torch.randint(2, 200, (2,), generator=generator).tolist()
        x, pools = pools_of(100 + k, *sizes, Q=1, D=1 + k % 3)
        tau, second = (10 ** float(torch.empty(()).uniform_(-1, 0.5, generator=generator)) for _ in range(2))
        options = {"tau": tau, "n": ((2, 1), (9, 30)), "pool_weights": (1.0, second)}
        expected = exact_stratified_bias(x, pools, **options, rtol=1e-11)
        with monkeypatch.context() as patch:
            patch.setattr(exact, "POINTS_AS_THEY_ARE", 0)
            found = exact_stratified_bias(x, pools, **options, rtol=(1e-3, 1e-6)[k % 2])
        true = torch.stack([(found[name].bias - expected[name].bias).norm(dim=-1) for name in found])
        exceeded += int((true > torch.stack([each.error for each in found.values()])).sum())
        total += true.numel()
    assert exceeded <= 0.01 * total


def test_a_smaller_tolerance_is_met():
    x, pools = pools_of(5, 3000, 600, Q=2)
    loose, tight = (exact_stratified_bias(x, pools, tau=0.2, n=((16, 8),), rtol=rtol)["abc"] for rtol in (1e-2, 1e-10))
    bound = 1e-10 * tight.bias.norm(dim=-1)
    assert (tight.error <= bound).all()
    assert (loose.error > bound).all()
    assert ((loose.bias - tight.bias).norm(dim=-1) <= loose.error).all()


def test_blocks_of_queries_change_nothing(monkeypatch):
    x, pools = pools_of(6, 600, 30, Q=5)
    whole = exact_stratified_bias(x, pools, tau=TAU, n=((3, 2),))
    monkeypatch.setattr(exact, "_HISTOGRAM_ELEMENTS", 1)
    monkeypatch.setattr("truedrift.bias.quadrature.ELEMENTS", 600)
    parts = exact_stratified_bias(x, pools, tau=TAU, n=((3, 2),))
    for name, each in parts.items():
        torch.testing.assert_close(each.bias, whole[name].bias, rtol=1e-9, atol=1e-13)
        torch.testing.assert_close(each.T_star, whole[name].T_star)


def test_slopes_have_the_orders_of_theory():
    """Stratified ABC has no term of 1/n; plain ABC, which takes the pools for one, keeps such a term."""
    x, pools = pools_of(7, 300, 200)
    found = exact_stratified_bias(x, pools, tau=TAU, n=((2048, 1024), (4096, 2048)), pool_weights=WEIGHTS, rtol=1e-8)
    for name, order in (("standard", 1), ("abc", 1), ("stratified-abc", 2)):
        coarse, fine = found[name].bias.norm(dim=-1).mean(0)
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.06)


def test_monte_carlo_agrees():
    """Means of 200 000 minibatches of 4 + 2: six numbers within five standard errors, a false alarm in 3·10⁵."""
    (x,), pools = pools_of(8, 30, 40, Q=1)
    sizes = (4, 2)
    generator = torch.Generator().manual_seed(9)
    draws = [torch.randint(len(y), (200_000, n), generator=generator) for y, n in zip(pools, sizes, strict=True)]
    parts = list(zip(pools, WEIGHTS, draws, strict=True))
    log_w = torch.cat([log_weights(x, y, weight)[drawn] for y, weight, drawn in parts], -1)
    found = exact_stratified_bias(x[None], pools, tau=TAU, n=(sizes,), pool_weights=WEIGHTS)
    y = torch.cat([y[drawn] for y, _, drawn in parts], -2) - found["abc"].T_star[0, 0]
    for each in estimators(sizes):
        T = (each.reweight(log_w).unsqueeze(-1) * y).sum(-2)
        error = T.std(0) / math.sqrt(len(T))
        assert ((T.mean(0) - found[each.name].bias[0, 0]).abs() < 5 * error).all()
    # Without the weight of the second pool the check fails.
    unweighted = exact_stratified_bias(x[None], pools, tau=TAU, n=(sizes,))["standard"]
    shifted = (unweighted.T_star + unweighted.bias - found["standard"].T_star - found["standard"].bias)[0, 0]
    assert shifted.abs().max() > 20 * error.max()


def test_the_polynomial_equals_the_estimator():
    """The polynomials in the sums of strata, at one minibatch, are γ · y of the estimators."""
    sizes = (3, 2)
    generator = torch.Generator().manual_seed(10)
    log_w, y = (torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(2))
    of_strata = list(zip(log_w.softmax(0).split(sizes), y.split(sizes), strict=True))
    for each in estimators(sizes):
        total = 0.0
        for monomials, coefficient in power_sums.centroid_polynomial(each.name, sizes).items():
            factors = zip(monomials, of_strata, strict=True)
            sums = [(alpha**k * values**ys).sum() for of, (alpha, values) in factors for k, ys in of]
            total += coefficient * float(torch.stack(sums).prod())
        assert total == pytest.approx(float(each.reweight(log_w) @ y), rel=1e-13)


def test_a_pool_of_one_point_or_of_equal_points_has_no_bias():
    found = exact_stratified_bias(
        torch.zeros(2, 2), [torch.ones(600, 2), torch.ones(1, 2)], tau=0.1, n=((1, 1), (7, 3)), pool_weights=(1, 5)
    )
    for each in found.values():
        assert (each.bias.abs() < 1e-15).all()


MISTAKES = {
    "no pools": ({"pools": []}, "pools is empty; must have one pool or more; pass"),
    "another dimension": ({"pools": [torch.ones(3, 2), torch.ones(3, 1)]}, r"x has D = 2 and pools\[1\] has D = 1; "),
    "not finite": ({"pools": [torch.ones(3, 2), torch.full((3, 2), math.nan)]}, r"pools\[1\] has 6 entries .*; remove"),
    "a size too few": ({"n": ((4,),)}, r"n is \(\(4,\),\); must be tuples of 2 integers ≥ 1, one per pool; pass"),
    "no draws": ({"n": ((4, 0),)}, r"n is \(\(4, 0\),\); must be tuples of 2 integers"),
    "no sizes": ({"n": ()}, r"n is \(\); must be tuples"),
    "no weight": ({"pool_weights": (1, 0)}, r"pool_weights is \(1, 0\); must be 2 positive numbers, one per pool; "),
    "a weight too many": ({"pool_weights": (1, 1, 1)}, r"pool_weights is \(1, 1, 1\); must be 2 positive"),
    "an unknown estimator": (
        {"estimators": ("abc2",)},
        "estimator is 'abc2'; must be one of 'standard', 'abc', 'strat",
    ),
    "one twice": ({"estimators": ("abc", "abc")}, "estimators are abc, abc; must be one or more different names; "),
    "none": ({"estimators": ()}, "estimators are empty; must be one or more different names; "),
    "no tolerance": ({"rtol": 0}, "rtol is 0; must be between 0 and 1; the default"),
    "no temperature": ({"tau": 0}, "tau is 0; must be a positive finite number"),
}


@pytest.mark.parametrize(("options", "message"), MISTAKES.values(), ids=MISTAKES)
def test_bad_arguments_are_rejected(options, message):
    right = {"pools": [torch.ones(3, 2), torch.ones(2, 2)], "tau": 0.5, "n": ((4, 2),)}
    with pytest.raises(ValueError, match=message):
        exact_stratified_bias(torch.ones(1, 2), **{**right, **options})
