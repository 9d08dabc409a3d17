"""The bias order of every estimator, measured exactly: expectations over all minibatches of a pool of three atoms.

`oracles.enumeration` sums over every outcome of n draws, so the slope of log ‖bias‖ over log n has no noise: at
n = 64 → 128 it differs from its limit −k only by the next order of the expansion. Weights and positions are asymmetric,
so that a wrong sign cannot pass. For estimators that draw, the exact distribution is enumerated, and the mean of the
implementation is compared with it at fixed seeds: |z| < 5, with a false-alarm probability of 6e-7 per coordinate.
"""

import math

import pytest
import torch
from oracles.enumeration import (
    Pool,
    centroids_of_counts,
    compositions,
    expected_bias,
    expected_bias_of_bootstrap,
    expected_bias_of_br_snis,
    expected_bias_of_strata,
    multinomial,
    outcomes,
    resamples,
    slope,
)

from truedrift.centroids import ABC, ABC2, BRSNIS, Bootstrap, Jackknife, Standard, StratifiedABC
from truedrift.kernels import log_kernel

Z_LIMIT = 5


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


POOL = Pool(
    y=float64([[0.0, 0.0], [1.0, 0.3], [-0.4, 1.7]]),
    log_w=float64([1.0, 0.6, 0.3]).log(),
    p=float64([0.25, 0.45, 0.3]),
)


def test_enumeration_covers_every_outcome():
    """Check of the oracle: the probabilities of all outcomes sum to 1, and their mean counts are n p."""
    assert len(list(compositions(5, 3))) == math.comb(7, 2)
    assert multinomial((1, 2, 1), [0.2, 0.5, 0.3]) == pytest.approx(12 * 0.2 * 0.25 * 0.3, rel=1e-15)
    counts, probability = outcomes(POOL, 30)
    assert float(probability.sum()) == pytest.approx(1, abs=1e-14)
    torch.testing.assert_close(probability @ counts.double(), 30 * POOL.p, rtol=1e-13, atol=0)
    torch.testing.assert_close(resamples(counts, counts).sum(-1), torch.ones_like(probability), rtol=1e-10, atol=0)


@pytest.mark.parametrize("each", [Standard(), ABC(), ABC2(), Jackknife()], ids=lambda each: each.name)
def test_bias_has_the_declared_order(each):
    coarse, fine = (expected_bias(POOL, n, each.reweight) for n in (64, 128))
    assert slope(coarse, fine) == pytest.approx(-each.bias_order, abs=0.05)


def test_leading_bias_matches_the_theorem():
    """n·bias = −g_2 + O(1/n) (`thm:ratio_bias`); extrapolating 2·(2n b_2n) − n b_n leaves O(1/n²)."""
    coarse, fine = (n * expected_bias(POOL, n, Standard().reweight) for n in (64, 128))
    torch.testing.assert_close(2 * fine - coarse, -POOL.displacement(2), rtol=1e-3, atol=0)


def test_residual_bias_of_abc_matches_its_closed_form():
    """n²·bias = 3 m_2 g_2 − 2 g_3 + O(1/n), which is what ABC-2 subtracts."""
    coarse, fine = (n**2 * expected_bias(POOL, n, ABC().reweight) for n in (64, 128))
    closed_form = 3 * POOL.moment(2) * POOL.displacement(2) - 2 * POOL.displacement(3)
    torch.testing.assert_close(2 * fine - coarse, closed_form, rtol=1e-3, atol=0)


def test_abc2_is_worse_at_small_n_and_better_at_large_n():
    """One atom has nearly all of the weight: exactly 1.23 times the bias of ABC at n = 8, 0.01 times at 64."""
    sharp = Pool(y=POOL.y, log_w=float64([1.0, 0.05, 0.01]).log(), p=POOL.p)
    ratios = [
        float(expected_bias(sharp, n, ABC2().reweight).norm() / expected_bias(sharp, n, ABC().reweight).norm())
        for n in (4, 8, 64)
    ]
    assert ratios == pytest.approx([1.08, 1.23, 0.01], abs=0.01)


def test_expectation_of_the_jackknife_matches_its_definition():
    """E[T_jack] = n E[T_n] − (n − 1) E[T_{n−1}], whatever the pool."""
    for n in (2, 5, 20):
        expected = n * expected_bias(POOL, n, Standard().reweight) - (n - 1) * expected_bias(
            POOL, n - 1, Standard().reweight
        )
        torch.testing.assert_close(expected_bias(POOL, n, Jackknife().reweight), expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("each", [Standard(), ABC(), ABC2(), Jackknife()], ids=lambda each: each.name)
def test_bias_of_a_single_reference(each):
    """E[T_1] − T* = −Cov(w, y)/E[w] (`thm:bias_n1`); at n = 1 no correction changes it."""
    w, p, y = POOL.log_w.exp(), POOL.p, POOL.y
    mean_w, mean_y = p @ w, p @ y
    covariance = (p * (w - mean_w)) @ (y - mean_y)
    torch.testing.assert_close(expected_bias(POOL, 1, each.reweight), -covariance / mean_w, rtol=1e-13, atol=0)
    assert float(covariance.norm()) > 0.05


@pytest.mark.parametrize("each", [Standard(), ABC(), ABC2()], ids=lambda each: each.name)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_no_bias_at_constant_weight(each, n):
    """`thm:zero_bias` (i)."""
    constant = Pool(y=POOL.y, log_w=torch.full_like(POOL.log_w, -3.0), p=POOL.p)
    assert float(expected_bias(constant, n, each.reweight).norm()) < 1e-15
    assert float(expected_bias(POOL, n, each.reweight).norm()) > 1e-3


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
@pytest.mark.parametrize("each", [Standard(), ABC(), ABC2()], ids=lambda each: each.name)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_no_bias_where_the_data_are_symmetric_about_the_query(kernel, each, n):
    """`thm:zero_bias` (ii), and bias as soon as one of the points is moved."""
    x, u, v = float64([[0.3, -0.2]]), float64([0.5, 0.1]), float64([-0.2, 0.9])
    p = float64([0.3, 0.3, 0.2, 0.2])

    def bias(*points):
        y = x + torch.stack(points)
        return expected_bias(Pool(y=y, log_w=log_kernel(kernel)(x, y, 0.4)[0], p=p), n, each.reweight).norm()

    assert float(bias(u, -u, v, -v)) < 1e-15
    assert float(bias(u, -u, v, -0.5 * v)) > 1e-4


FIRST = Pool(y=float64([[0.0, 0.0], [1.0, 0.3]]), log_w=float64([1.0, 0.4]).log(), p=float64([0.35, 0.65]))
SECOND = Pool(y=float64([[-0.5, 1.5], [2.0, 1.0]]), log_w=float64([0.9, 0.2]).log(), p=float64([0.4, 0.6]))


def bias_of_strata(n, reweight):
    """Two thirds of n from the first pool and one third from the second."""
    return expected_bias_of_strata(FIRST, SECOND, (2 * n // 3, n // 3), reweight)


def test_bias_of_stratified_abc_has_the_declared_order():
    coarse, fine = (
        bias_of_strata(n, StratifiedABC((torch.arange(n) >= 2 * n // 3).long()).reweight) for n in (96, 192)
    )
    assert slope(coarse, fine) == pytest.approx(-StratifiedABC.bias_order, abs=0.05)


def test_plain_abc_has_first_order_bias_on_strata():
    """Negative control: it subtracts a bias that the fixed n_s have already removed."""
    coarse, fine = (bias_of_strata(n, ABC().reweight) for n in (96, 192))
    assert slope(coarse, fine) == pytest.approx(-1, abs=0.1)


def test_bias_of_the_ideal_bootstrap_has_the_declared_order():
    coarse, fine = (expected_bias_of_bootstrap(POOL, n) for n in (32, 64))
    assert slope(coarse, fine) == pytest.approx(-Bootstrap.bias_order, abs=0.05)


@pytest.mark.parametrize("masked", [0, 2])
def test_bootstrap_draws_match_the_exact_distribution(masked):
    """10⁵ resamples of one minibatch against the mean and variance over all of them; masked slots change neither."""
    minibatch = torch.tensor([[2, 3, 1]])
    drawn = torch.arange(3).repeat_interleave(minibatch[0])
    slots = torch.tensor([0, 1, 2, 3, 4, 5] if not masked else [1, 2, 4, 5, 6, 7])
    log_w = torch.full((6 + masked,), -math.inf, dtype=torch.float64)
    log_w[slots] = POOL.log_w[drawn]
    y = torch.zeros(6 + masked, 2, dtype=torch.float64)
    y[slots] = (POOL.y - POOL.T_star)[drawn]
    each = Bootstrap(resamples=100)
    T = each.reweight(log_w.expand(1000, -1), torch.Generator().manual_seed(0)) @ y

    counts, _ = outcomes(POOL, 6)
    law = resamples(counts, minibatch)[0]
    T_resampled = centroids_of_counts(POOL, counts)
    mean = law @ T_resampled
    deviation = (law @ (T_resampled - mean).square()).sqrt()
    ideal = 2 * centroids_of_counts(POOL, minibatch)[0] - mean
    z = (T.mean(0) - ideal) / (deviation / math.sqrt(1000 * 100))
    assert float(z.abs().max()) < Z_LIMIT
    # Negative control: neither the plain centroid nor a correction of the wrong size would pass.
    assert (
        float(((mean - centroids_of_counts(POOL, minibatch)[0]).abs() / deviation).max()) * math.sqrt(1e5) > 4 * Z_LIMIT
    )


@pytest.mark.parametrize("burn_in", [0, 1, 2])
def test_bias_of_br_snis_has_the_declared_order(burn_in):
    coarse, fine = (expected_bias_of_br_snis(POOL, n, iterations=10, burn_in=burn_in) for n in (64, 128))
    assert slope(coarse, fine) == pytest.approx(-BRSNIS(burn_in=burn_in).bias_order, abs=0.05)


def test_one_iteration_of_br_snis_is_the_standard_centroid():
    """Check of the oracles: without burn-in, one iteration is the plain centroid of n draws."""
    torch.testing.assert_close(
        expected_bias_of_br_snis(POOL, 9, iterations=1, burn_in=0),
        expected_bias(POOL, 9, Standard().reweight),
        rtol=1e-12,
        atol=0,
    )


@pytest.mark.parametrize("burn_in", [0, 1])
def test_br_snis_draws_match_the_exact_chain(burn_in):
    """2·10⁵ chains of three iterations with n = 3, where a burn-in of one more or less is many deviations away."""
    each, chains, n = BRSNIS(iterations=3, burn_in=burn_in), 200_000, 3
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(POOL.p, chains * each.budget(n), replacement=True, generator=generator).view(chains, -1)
    gamma = each.reweight(POOL.log_w[drawn], generator)
    T = torch.einsum("bm,bmd->bd", gamma, (POOL.y - POOL.T_star)[drawn])
    error = T.std(0) / math.sqrt(chains)

    def z(assumed):
        return ((T.mean(0) - expected_bias_of_br_snis(POOL, n, 3, assumed)) / error).abs().max()

    assert float(z(burn_in)) < Z_LIMIT
    assert float(z(1 - burn_in)) > 4 * Z_LIMIT
