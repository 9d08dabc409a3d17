"""The exact expectation of the field against enumeration of all draws, the exact moments, and its theorem."""

import itertools

import pytest
import torch

from truedrift.bias import exact_field, exact_moments, pool_moments
from truedrift.centroids import Windowed, estimator
from truedrift.data import FOUR_MODES
from truedrift.field import drift

TAU = 0.4
PAIRS = ((4, 2), (2, 5), (4, 3), (5, 3), (3, 3))
"""(n, m): blocks, blocks of negatives with a rest, leave-one-out, a ring, equal sizes."""


def pools(seed=0, N=3, M=3, Q=3, dtype=torch.float64):
    """Asymmetric pools of a few points, and queries."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 2, generator=generator, dtype=torch.float64).to(dtype) for rows in (Q, N, M)]


def literal(name, log_w, y):
    """The centroids [draws, D] of minibatches [draws, n], as the paper writes them."""
    alpha = log_w.softmax(-1).unsqueeze(-1)
    T, p_2, p_3 = (alpha * y).sum(-2), alpha.square().sum(-2), alpha.pow(3).sum(-2)
    if name == "standard":
        return T
    if name == "abc":
        return (1 - p_2) * T + (alpha.square() * y).sum(-2)
    D_2, D_3 = (alpha.square() * y).sum(-2) - p_2 * T, (alpha.pow(3) * y).sum(-2) - p_3 * T
    return T + (1 - 3 * p_2) * D_2 + 2 * D_3


def enumerated(name, x, pool, size, window=None):
    """E[T] over all N^size draws; with a window, that of the estimator over windows as it is used in a field."""
    draws = torch.tensor(list(itertools.product(range(len(pool)), repeat=size)))
    log_w, y = (-(pool - x).norm(dim=-1) / TAU)[draws], pool[draws]
    if window is None:
        return literal(name, log_w, y).mean(0)
    gamma = Windowed(estimator(name), window).reweight(log_w)
    return (gamma.unsqueeze(-1) * y).sum(-2).mean(0)


@pytest.mark.parametrize("name", ["standard", "abc", "abc2"])
@pytest.mark.parametrize("matched", [False, True])
def test_enumeration_of_all_draws(name, matched):
    x, p, q = pools(M=2)
    n, m = zip(*PAIRS, strict=True)
    found = exact_field(x, p, q, tau=TAU, n=n, m=m, estimator=name, matched=matched, rtol=1e-13)
    assert found.V.shape == (3, len(PAIRS), 2)
    for i, query in enumerate(x):
        for k, (n, m) in enumerate(PAIRS):
            window = min(n, m) if matched else None
            expected = enumerated(name, query, p, n, window) - enumerated(name, query, q, m, window)
            torch.testing.assert_close(found.V[i, k], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("matched", [False, True])
def test_mean_of_drift_over_all_batches(matched):
    """Every batch of 3 positives and 2 negatives, through `drift` itself."""
    x, p, q = pools(seed=1)
    draws_p, draws_q = (torch.tensor(list(itertools.product(range(3), repeat=size))) for size in (3, 2))
    y_pos, y_neg = p[draws_p].repeat_interleave(len(draws_q), 0), q[draws_q].repeat(len(draws_p), 1, 1)
    mean = drift(x.expand(len(y_pos), -1, -1), y_pos, y_neg, tau=TAU, matched=matched).V.mean(0)
    found = exact_field(x, p, q, tau=TAU, n=3, m=2, matched=matched, rtol=1e-13)
    torch.testing.assert_close(found.V[:, 0], mean, rtol=0, atol=1e-12)
    other = exact_field(x, p, q, tau=TAU, n=3, m=2, matched=not matched)
    assert (other.V[:, 0] - mean).norm(dim=-1).min() > 1e-3  # the check tells both apart


def test_matched_references_at_equal_pools_leave_exactly_nothing():
    x, p, _ = pools(seed=2, N=600)
    n, m = (8, 64, 7, 5), (7, 7, 64, 5)
    for name in ("standard", "abc", "abc2"):
        matched = exact_field(x, p, p.clone(), tau=TAU, n=n, m=m, estimator=name, matched=True)
        assert matched.V.count_nonzero() == matched.error.count_nonzero() == matched.population.count_nonzero() == 0
        plain = exact_field(x, p, p.clone(), tau=TAU, n=n, m=m, estimator=name)
        norms = plain.V.norm(dim=-1)
        assert norms[:, :3].min() > 1e-5
        assert norms[:, 3].max() == plain.error[:, 3].max() == 0


def test_exchanging_both_sides_changes_the_sign():
    x, p, q = pools(seed=3, N=700, M=20)
    one = exact_field(x, p, q, tau=TAU, n=(6, 9), m=(4, 20))
    other = exact_field(x, q, p, tau=TAU, n=(4, 20), m=(6, 9))
    torch.testing.assert_close(one.V, -other.V, rtol=0, atol=1e-14)
    torch.testing.assert_close(one.population, -other.population, rtol=0, atol=1e-14)
    assert (one.n, one.m) == ((6, 9), (4, 20))


def test_many_references_give_the_field_of_the_population():
    x, p, q = pools(seed=4, N=600, M=30)
    found = exact_field(x, p, q, tau=TAU, n=(100, 10_000), m=(100, 10_000))
    T_p, T_q = (((-torch.cdist(x, pool) / TAU).softmax(-1)) @ pool for pool in (p, q))
    torch.testing.assert_close(found.T_star_pos, T_p, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.T_star_neg, T_q, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.population, T_p - T_q, rtol=0, atol=1e-12)
    distance = (found.V - found.population.unsqueeze(1)).norm(dim=-1)
    assert (distance[:, 1] < 2e-4 * distance[:, 0]).all()  # ABC: n⁻²


def test_leading_term_at_equal_pools():
    """E[V] = −g_2 (1/n − 1/m) + O(n⁻²) for the standard centroid."""
    generator = torch.Generator().manual_seed(5)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (2000, 5))
    n, m = 40_000, 20_000
    found = exact_field(x, pool, pool, tau=0.5, n=n, m=m, estimator="standard", rtol=1e-9)
    g_2 = pool_moments(x, pool, tau=0.5).g_2
    torch.testing.assert_close(found.V[:, 0], -g_2 * (1 / n - 1 / m), rtol=2e-3, atol=0)


def test_sides_are_those_of_the_exact_moments_and_errors_add():
    x, p, q = pools(seed=6, N=900, M=800)
    found = exact_field(x, p, q, tau=TAU, n=(8, 5), m=(3, 5), estimator="jackknife", kernel="gaussian")
    settings = {"tau": TAU, "estimator": "jackknife", "kernel": "gaussian"}
    pos, neg = exact_moments(x, p, n=(8, 5), **settings), exact_moments(x, q, n=(3, 5), **settings)
    expected = (pos.T_star.unsqueeze(1) + pos.bias) - (neg.T_star.unsqueeze(1) + neg.bias)
    torch.testing.assert_close(found.V, expected, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.error, pos.error + neg.error)


def test_float32_input_is_computed_in_float64():
    x, p, q = pools(dtype=torch.float32)
    found = exact_field(x, p, q, tau=TAU, n=3, m=2)
    assert {found.V.dtype, found.error.dtype, found.population.dtype} == {torch.float64}
    wide = exact_field(x.double(), p.double(), q.double(), tau=TAU, n=3, m=2)
    assert found.V.equal(wide.V)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n": (8, 4), "m": (7,)}, r"n has 2 sizes and m has 1; they must be pairs; pass as many m as n"),
        ({"n": 0}, r"n is 0; must be one or more integers ≥ 1; "),
        ({"m": (7, 2.5), "n": (8, 8)}, r"m is \(7, 2.5\); must be one or more integers ≥ 1; "),
        ({"n": (8, 1), "m": (7, 7), "matched": True}, r"matched is True with n = \(8, 1\) and m = .* at least 2; "),
        ({"tau": 0.0}, r"tau is 0.0; "),
        ({"estimator": "bootstrap"}, r"estimator is 'bootstrap', a Bootstrap; exact moments are available for "),
        ({"rtol": 2.0}, r"rtol is 2.0; must be between 0 and 1; "),
        ({"pool_neg": torch.zeros(4, 3)}, r"pool_neg"),
        ({"pool_pos": torch.full((4, 2), torch.nan)}, r"pool_pos"),
    ],
)
def test_bad_arguments_are_rejected(changed, message):
    x, p, q = pools()
    arguments = {"x": x, "pool_pos": p, "pool_neg": q, "tau": TAU, "n": 8, "m": 7} | changed
    with pytest.raises(ValueError, match=message):
        exact_field(**arguments)
