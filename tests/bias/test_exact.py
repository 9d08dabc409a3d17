"""Exact moments against enumeration of all draws, plain quadrature, theorems and Monte Carlo."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch

from truedrift.bias import exact, exact_moments, exact_moments_by_estimator, histogram
from truedrift.centroids import ABC, BRSNIS
from truedrift.data import FOUR_MODES

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)


def population(seed, N, D=2, Q=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, D, generator=generator, dtype=torch.float64) for rows in (Q, N)]


def literal(name, log_w, y):
    """The centroid of one minibatch, as the paper writes it."""
    alpha = log_w.softmax(-1)
    n = len(y)
    T = alpha @ y
    p_2, p_3 = alpha.square().sum(), alpha.pow(3).sum()
    if name == "standard":
        return T
    if name == "abc":
        return (1 - p_2) * T + alpha.square() @ y
    if name == "abc2":
        return T + (1 - 3 * p_2) * (alpha.square() @ y - p_2 * T) + 2 * (alpha.pow(3) @ y - p_3 * T)
    if n == 1:
        return T
    others = [[j for j in range(n) if j != i] for i in range(n)]
    return n * T - (n - 1) * torch.stack([log_w[rest].softmax(-1) @ y[rest] for rest in others]).mean(0)


def enumerated(name, x, pool, tau, n):
    """(E[T], E‖T − T*‖², T*) over all N^n draws."""
    log_w = -(pool - x).norm(dim=-1) / tau
    T_star = log_w.softmax(-1) @ pool
    draws = [list(draw) for draw in itertools.product(range(len(pool)), repeat=n)]
    T = torch.stack([literal(name, log_w[draw], pool[draw]) for draw in draws])
    return T.mean(0), (T - T_star).square().sum(-1).mean(), T_star


@pytest.mark.parametrize("name", ["standard", "abc", "abc2", "jackknife"])
@pytest.mark.parametrize(("N", "n"), [(2, 1), (5, 2), (4, 3), (4, 4), (3, 6)])
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_enumeration_of_all_draws(name, N, n, tau):
    x, pool = population(N + n, N)
    moments = exact_moments(x, pool, tau=tau, n=n, estimator=name, rtol=1e-13)
    for q, query in enumerate(x):
        mean, mse, T_star = enumerated(name, query, pool, tau, n)
        torch.testing.assert_close(moments.T_star[q], T_star, rtol=0, atol=1e-12)
        torch.testing.assert_close(moments.bias[q, 0], mean - T_star, rtol=0, atol=1e-12)
        if name == "jackknife":
            assert moments.mse[q].isnan().all()
            assert moments.variance[q].isnan().all()
        else:
            torch.testing.assert_close(moments.mse[q, 0], mse, rtol=0, atol=1e-12)
            variance = mse - (mean - T_star).square().sum()
            torch.testing.assert_close(moments.variance[q, 0], variance, rtol=0, atol=1e-12)


def iterated(log_w, y, n, iterations, burn_in):
    """E[T] of BR-SNIS: every draw and every choice of the next state, by its probability."""
    N = len(y)

    def after(state, k):
        if k == iterations:
            return 0.0
        total = 0.0
        for draw in itertools.product(range(N), repeat=n - 1):
            members = [state, *draw]
            alpha = log_w[members].softmax(-1)
            here = alpha @ y[members] if k >= burn_in else 0.0
            later = sum(a * after(member, k + 1) for a, member in zip(alpha, members, strict=True))
            total = total + (here + later) / N ** (n - 1)
        return total

    return sum(after(state, 0) for state in range(N)) / N / (iterations - burn_in)


@pytest.mark.parametrize(("n", "iterations", "burn_in"), [(2, 2, 0), (2, 3, 1), (3, 2, 1), (1, 2, 1)])
def test_enumeration_of_br_snis(n, iterations, burn_in):
    (x,), pool = population(3, 3, Q=1)
    log_w = -(pool - x).norm(dim=-1) / 0.5
    expected = iterated(log_w, pool, n, iterations, burn_in) - log_w.softmax(-1) @ pool
    estimator = BRSNIS(iterations=iterations, burn_in=burn_in)
    found = exact_moments(x[None], pool, tau=0.5, n=n, estimator=estimator, rtol=1e-13)
    torch.testing.assert_close(found.bias[0, 0], expected, rtol=0, atol=1e-12)
    assert found.mse.isnan().all()


def test_one_reference_has_the_bias_of_the_theorem():
    """E[T_1] − T* = −Cov(w, y)/E[w] for every estimator (`thm:bias_n1`)."""
    x, pool = population(1, 500)
    w = (-torch.cdist(x, pool) / 0.3).exp()
    covariance = ((w - w.mean(-1, keepdim=True)) @ (pool - pool.mean(0))) / len(pool)
    for name in exact.ESTIMATORS:
        bias = exact_moments(x, pool, tau=0.3, n=1, estimator=name).bias[:, 0]
        torch.testing.assert_close(bias, -covariance / w.mean(-1, keepdim=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", exact.ESTIMATORS)
def test_no_bias_for_constant_weights_and_symmetric_pools(name):
    """Constant weights, and a pool that is symmetric about the query (`thm:zero_bias`)."""
    angle = torch.linspace(0, 5, 40, dtype=torch.float64)
    circle = torch.stack((angle.cos(), angle.sin()), -1)
    x, half = population(2, 50, Q=1)
    symmetric = torch.cat((half, 2 * x - half))
    for query, pool in ((torch.zeros_like(x), circle), (x, symmetric)):
        moments = exact_moments(query, pool, tau=0.2, n=(1, 4, 64), estimator=name)
        assert (moments.bias.norm(dim=-1) < 1e-13).all()


def test_a_histogram_agrees_with_the_sum_over_points(monkeypatch):
    """The histogram of 600 points against their plain sums, within the error that is reported."""
    x, pool = population(4, 600)
    for name in exact.ESTIMATORS:
        estimator = BRSNIS(iterations=3) if name == "br-snis" else name
        found = exact_moments(x, pool, tau=0.2, n=(2, 16, 300), estimator=estimator)
        with monkeypatch.context() as patch:
            patch.setattr(exact, "POINTS_AS_THEY_ARE", 10**6)
            expected = exact_moments(x, pool, tau=0.2, n=(2, 16, 300), estimator=estimator, rtol=1e-9)
        assert ((found.bias - expected.bias).norm(dim=-1) <= found.error).all()
        assert (found.error <= 1e-6 * found.bias.norm(dim=-1) + 1e-13 * 3).all()
        if name in ("standard", "abc", "abc2"):
            torch.testing.assert_close(found.mse, expected.mse, rtol=1e-5, atol=0)


def test_the_reported_error_is_not_exceeded(monkeypatch):
    """80 random populations, each at three n and one tolerance; the true error is from plain sums."""
    generator = torch.Generator().manual_seed(6)
    exceeded = total = 0
    for k in range(80):
        D, N = 1 + k % 3, int(torch.randint(2, 400, (), generator=generator))
        pool = torch.randn(N, D, generator=generator, dtype=torch.float64)
        if k % 2:
            pool = pool.round(decimals=1)
        x = torch.randn(1, D, generator=generator, dtype=torch.float64)
        options = {"tau": 10 ** float(torch.empty(()).uniform_(-1.3, 0.5, generator=generator)), "n": (2, 9, 120)}
        options["estimator"] = ("standard", "abc", "abc2", "jackknife")[k % 4]
        expected = exact_moments(x, pool, **options, rtol=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr(exact, "POINTS_AS_THEY_ARE", 0)
            found = exact_moments(x, pool, **options, rtol=(1e-4, 1e-7)[k // 2 % 2])
        true = (found.bias - expected.bias).norm(dim=-1)
        exceeded += int((true > found.error).sum())
        total += true.numel()
    assert exceeded <= 0.01 * total


def test_steps_are_halved_until_the_tolerance_is_met():
    x, pool = population(7, 3000, Q=1)
    errors = [float(exact_moments(x, pool, tau=0.2, n=16, rtol=rtol).error) for rtol in (1e-3, 1e-10)]
    bias = float(exact_moments(x, pool, tau=0.2, n=16).bias.norm())
    assert errors[1] <= 1e-10 * bias < errors[0]


def four_modes(N=100_000, Q=40):
    generator = torch.Generator().manual_seed(0)
    return (FOUR_MODES.sample(rows, generator, dtype=torch.float64) for rows in (Q, N))


@pytest.mark.parametrize("tau", [0.1, 0.2])
def test_slopes_on_the_toy_of_the_paper(tau):
    """Deterministic: the pool and the queries are fixed, and nothing is sampled."""
    x, pool = four_modes()
    for name, order, within in (("standard", 1, 0.03), ("abc", 2, 0.06), ("abc2", 3, 0.15)):
        b = exact_moments(x, pool, tau=tau, n=(256, 512), estimator=name).bias.norm(dim=-1).mean(0)
        assert abs(float(torch.log2(b[0] / b[1])) - order) < within


def test_monte_carlo_agrees():
    """Mean and mean square of 200 000 draws, within four standard errors: a false alarm in 10⁴ at most."""
    (x,), pool = (part[:1] if k == 0 else part for k, part in enumerate(population(8, 30, Q=1)))
    log_w = -(pool - x).norm(dim=-1) / 0.4
    T_star = log_w.softmax(-1) @ pool
    draws = torch.randint(30, (200_000, 5), generator=torch.Generator().manual_seed(9))
    alpha = log_w[draws].softmax(-1)
    for name in ("standard", "abc", "abc2"):
        moments = exact_moments(x[None], pool, tau=0.4, n=5, estimator=name)
        p_2, p_3 = (alpha.pow(k).sum(-1, keepdim=True) for k in (2, 3))
        gamma = {
            "standard": alpha,
            "abc": alpha * (1 - p_2 + alpha),
            "abc2": alpha * (1 - p_2 + 3 * p_2**2 - 2 * p_3 + (1 - 3 * p_2) * alpha + 2 * alpha**2),
        }[name]
        T = (gamma.unsqueeze(-1) * pool[draws]).sum(-2) - T_star
        assert ((T.mean(0) - moments.bias[0, 0]).abs() < 4 * T.std(0) / math.sqrt(len(T))).all()
        square = T.square().sum(-1)
        assert abs(square.mean() - moments.mse[0, 0]) < 4 * square.std() / math.sqrt(len(T))


def test_several_n_and_queries_equal_separate_calls():
    x, pool = population(10, 200, Q=4)
    together = exact_moments(x, pool, tau=0.3, n=[3, 50])
    assert together.n == (3, 50)
    for q in range(4):
        for k, n in enumerate((3, 50)):
            alone = exact_moments(x[q : q + 1], pool, tau=0.3, n=n)
            torch.testing.assert_close(together.bias[q, k], alone.bias[0, 0], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kernel", ["gaussian", lambda x, y, tau: -torch.cdist(x, y).square() / (2 * tau**2)])
def test_other_kernels(kernel):
    (x,), pool = population(11, 4, Q=1)
    log_w = -(pool - x).square().sum(-1) / (2 * 0.8**2)
    draws = torch.tensor(list(itertools.product(range(4), repeat=3)))
    T = (log_w[draws].softmax(-1).unsqueeze(-1) * pool[draws]).sum(-2).mean(0) - log_w.softmax(-1) @ pool
    found = exact_moments(x[None], pool, tau=0.8, n=3, estimator="standard", kernel=kernel)
    torch.testing.assert_close(found.bias[0, 0], T, rtol=0, atol=1e-12)


def test_a_common_offset_keeps_the_accuracy():
    x, pool = population(12, 300)
    expected = exact_moments(x, pool, tau=0.3, n=20).bias
    found = exact_moments(x + 1024, pool + 1024, tau=0.3, n=20).bias
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("far", [1e-3, 1e3])
def test_sharp_and_wide_kernels(far):
    """d/τ from 10⁻³ to 10³."""
    x, pool = population(13, 600, Q=1)
    found = exact_moments(x, pool, tau=1 / far, n=(2, 30), rtol=1e-4)
    assert found.bias.isfinite().all()
    assert found.mse.isfinite().all()
    assert (found.variance > 0).all()


def test_a_histogram_preserves_cubic_moments():
    """Lagrange weights reproduce polynomials of degree 3 exactly, and a coarser histogram too."""
    generator = np.random.default_rng(0)
    s, y = generator.uniform(0, 7, (2, 50)), generator.normal(size=(50, 3))
    fine = histogram.deposit(s, y, 0.1)
    for grid, step, origin in (
        (fine, 0.1, 0),
        (histogram.coarsen(fine), 0.2, 0),
        (histogram.coarsen(fine, odd=True), 0.2, -0.1),
    ):
        place = step * (np.arange(grid.shape[1]) - 2) + origin
        for k in range(4):
            np.testing.assert_allclose(grid[..., 0] @ place**k, (s**k).mean(-1), rtol=1e-12)
            np.testing.assert_allclose(
                np.einsum("j,qjd->qd", place**k, grid[..., 1:-1]), s**k @ y / 50, rtol=1e-11, atol=1e-11
            )


MISTAKES = {
    "estimator": (
        {"estimator": "bootstrap"},
        "estimator is 'bootstrap', a Bootstrap; exact moments are available for standard, abc, .*; measure others",
    ),
    "n": ({"n": 0}, "n is 0; must be one or more integers ≥ 1; pass"),
    "no n": ({"n": ()}, r"n is \(\); must be one or more"),
    "half": ({"n": (2, 2.5)}, "n is .*; must be one or more integers"),
    "tau": ({"tau": 0.0}, "tau is 0.0; must be a positive finite number"),
    "rtol": ({"rtol": 0.0}, "rtol is 0.0; must be between 0 and 1; "),
    "three dimensions": ({"pool": torch.zeros(2, 3, 2)}, r"pool has shape \[2, 3, 2\]; must have two dimensions"),
    "other D": ({"pool": torch.zeros(3, 5)}, "x has D = 2 and pool has D = 5"),
    "NaN": ({"pool": torch.full((3, 2), torch.nan)}, "pool has 6 entries that are NaN or infinite"),
}


@pytest.mark.parametrize(("changed", "match"), MISTAKES.values(), ids=MISTAKES)
def test_bad_arguments_are_rejected(changed, match):
    arguments = {"x": torch.zeros(1, 2), "pool": torch.ones(3, 2), "tau": 0.1, "n": 4} | changed
    with pytest.raises(ValueError, match=match):
        exact_moments(arguments.pop("x"), arguments.pop("pool"), **arguments)


def test_several_estimators_equal_separate_calls():
    x, pool = population(14, 700)
    together = exact_moments_by_estimator(x, pool, tau=0.3, n=(3, 40), estimators=("abc", "standard", "jackknife"))
    assert list(together) == ["abc", "standard", "jackknife"]
    for name, moments in together.items():
        alone = exact_moments(x, pool, tau=0.3, n=(3, 40), estimator=name)
        torch.testing.assert_close(moments.bias, alone.bias, rtol=1e-9, atol=1e-14)
    for wrong in (("abc", "abc"), ()):
        with pytest.raises(ValueError, match=r"estimators are .*; must be one or more different names; pass"):
            exact_moments_by_estimator(x, pool, tau=0.3, n=3, estimators=wrong)


def test_blocks_of_queries_change_nothing(monkeypatch):
    """With room for one histogram, and for all of them."""
    x, pool = population(15, 700, Q=5)
    expected = exact_moments(x, pool, tau=0.3, n=(3, 40))
    monkeypatch.setattr(exact, "_HISTOGRAM_ELEMENTS", 1)
    found = exact_moments(x, pool, tau=0.3, n=(3, 40))
    torch.testing.assert_close(found.bias, expected.bias, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(found.T_star, expected.T_star)


def test_a_pool_of_one_point_or_of_equal_points_has_no_bias():
    for count in (1, 3, 600):
        moments = exact_moments(torch.zeros(2, 2), torch.ones(count, 2), tau=0.1, n=(1, 7))
        assert (moments.bias == 0).all()
        assert (moments.mse == 0).all()


def test_without_numba_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "truedrift.bias.histogram", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    x, pool = population(16, 600)
    with pytest.raises(ModuleNotFoundError, match=r"numba is not installed; a pool of more than 512.*truedrift\[lab\]"):
        exact_moments(x, pool, tau=0.3, n=3)
    assert exact_moments(x, pool[:100], tau=0.3, n=3).bias.isfinite().all()


@pytest.mark.parametrize("points", [300, 3000])
def test_a_temperature_that_needs_too_much_memory_is_rejected(points):
    pool = torch.randn(points, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(
        ValueError, match=r"log w ranges over \S+ at a query; must be at most about \S+ for .*; use a larger"
    ):
        exact_moments(pool[:1], pool, tau=1e-6, n=4)
    assert exact_moments(pool[:1], pool, tau=2e-3, n=4).bias.isfinite().all()


def test_an_estimator_is_recognized_by_its_type():
    class Mine(ABC):
        pass

    pool = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(
        ValueError, match=r"estimator is 'abc', a Mine; exact moments are available for standard, .*; measure "
    ):
        exact_moments(pool[:1], pool, tau=1.0, n=4, estimator=Mine())
