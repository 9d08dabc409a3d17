"""Closed forms against exact moments."""

import torch

from truedrift.bias import compensation, effective_share, exact_moments, pool_moments, quadrature, theory
from truedrift.data import FOUR_MODES

TAU = 0.2


def toy(N=2000, Q=12):
    generator = torch.Generator().manual_seed(3)
    return (FOUR_MODES.sample(rows, generator, dtype=torch.float64) for rows in (Q, N))


def test_the_bias_of_one_reference():
    x, pool = toy()
    bias = exact_moments(x, pool, tau=TAU, n=1, estimator="standard").bias[:, 0]
    torch.testing.assert_close(pool.mean(0) - pool_moments(x, pool, tau=TAU).T_star, bias, rtol=1e-6, atol=0)


def test_leading_bias_and_residual_of_abc():
    """exact = predicted (1 + O(1/n)): the relative error is small, and halves when n doubles."""
    x, pool = toy()
    moments = pool_moments(x, pool, tau=TAU)
    for name, predict in (("standard", lambda n: -moments.g_2 / n), ("abc", moments.abc_residual)):
        exact = exact_moments(x, pool, tau=TAU, n=(2048, 4096), estimator=name).bias
        errors = [((exact[:, k] - predict(n)).norm() / predict(n).norm()) for k, n in enumerate((2048, 4096))]
        assert errors[1] < 0.02
        assert 1.9 < errors[0] / errors[1] < 2.1


def test_effective_sample_size_falls_with_the_temperature():
    """λ = E[w²]/E[w]² is at least 1 and grows as τ falls, at every query."""
    x, pool = toy()
    n_eff = torch.stack([pool_moments(x, pool, tau=tau).n_eff(100) for tau in (2.0, 0.5, 0.2, 0.1, 0.05)])
    assert (n_eff <= 100).all()
    assert (n_eff.diff(dim=0) < 0).all()


def test_compensation_uses_the_derivative_by_the_temperature():
    x, pool = toy()
    step = 1e-5
    higher, lower = (pool_moments(x, pool, tau=tau).T_star for tau in (TAU + step, TAU - step))
    slope, g_2 = (higher - lower) / (2 * step), pool_moments(x, pool, tau=TAU).g_2
    found = compensation(x, pool, tau=TAU)
    along = (slope * g_2).sum(-1)
    torch.testing.assert_close(found.shift, along / slope.square().sum(-1), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(
        found.cosine, along.abs() / (slope.norm(dim=-1) * g_2.norm(dim=-1)), rtol=1e-6, atol=1e-9
    )


def test_a_shift_of_the_temperature_cancels_the_bias_of_one_query_in_one_dimension():
    """D = 1: at τ + Δ with Δ = shift/n there is no bias to first order; the shifts of queries differ."""
    generator = torch.Generator().manual_seed(4)
    pool = torch.randn(800, 1, generator=generator, dtype=torch.float64)
    x = torch.tensor([[0.4], [1.1]], dtype=torch.float64)
    found = compensation(x, pool, tau=0.5)
    torch.testing.assert_close(found.cosine, torch.ones(2, dtype=torch.float64))
    assert abs(found.shift[0] - found.shift[1]) > 0.1 * found.shift.abs().max()
    n = 4000
    for q in range(2):
        target = pool_moments(x[q : q + 1], pool, tau=0.5).T_star
        plain = exact_moments(x[q : q + 1], pool, tau=0.5, n=n, estimator="standard")
        shifted = exact_moments(
            x[q : q + 1], pool, tau=0.5 + float(found.shift[q]) / n, n=n, estimator="standard", rtol=1e-9
        )
        left = shifted.T_star + shifted.bias[:, 0] - target
        assert left.abs() < 0.02 * plain.bias.abs().squeeze()


def test_no_single_shift_compensates_in_the_plane():
    x, pool = toy()
    found = compensation(x, pool, tau=TAU)
    assert found.cosine.min() < 0.95
    assert found.shift.max() > 1.5 * found.shift.median()


def test_variance_is_unchanged_to_first_order():
    """n (Var ABC − Var standard) → 0 as 1/n (`prop:variance`), exactly."""
    x, pool = toy(Q=4)
    sizes = (256, 512, 1024)
    variance = {k: exact_moments(x, pool, tau=TAU, n=sizes, estimator=k).variance for k in ("standard", "abc")}
    difference = (variance["abc"] - variance["standard"]).abs() * torch.tensor(sizes)
    assert (difference[:, -1] < 0.1 * variance["standard"][:, -1] * sizes[-1]).all()
    ratio = difference[:, :-1] / difference[:, 1:]
    assert ((ratio > 1.8) & (ratio < 2.2)).all()


def test_abc_is_better_on_average_and_not_at_each_query():
    """The mean over queries never exceeds standard; at n = 8 and τ = 0.1 more than a quarter of single queries do."""
    x, pool = toy(Q=200)
    norms = {
        name: exact_moments(x, pool, tau=0.1, n=(4, 8, 16, 64, 256), estimator=name).bias.norm(dim=-1)
        for name in ("standard", "abc")
    }
    assert (norms["abc"].mean(0) < norms["standard"].mean(0)).all()
    assert (norms["abc"][:, 1] > norms["standard"][:, 1]).double().mean() > 0.25


def test_the_effective_share_is_one_over_lambda():
    x, pool = toy()
    taus = (0.05, TAU, 1.0)
    expected = torch.stack([pool_moments(x, pool, tau=tau).n_eff(1) for tau in taus], -1)
    torch.testing.assert_close(effective_share(x, pool, taus=taus), expected, rtol=1e-12, atol=0)


def test_memory_does_not_grow_with_the_queries(monkeypatch):
    """One query at a time, or all of them: the same, and no [Q, N] is ever formed."""
    x, pool = toy()
    functions = (
        lambda: pool_moments(x, pool, tau=TAU).g_3,
        lambda: compensation(x, pool, tau=TAU).shift,
        lambda: effective_share(x, pool, taus=(TAU,)),
    )
    whole = [function() for function in functions]
    largest = 0
    literal = quadrature.minus_log_kernel

    def watched(*arguments):
        nonlocal largest
        s = literal(*arguments)
        largest = max(largest, s.numel())
        return s

    monkeypatch.setattr(quadrature, "ELEMENTS", len(pool))
    monkeypatch.setattr(theory, "minus_log_kernel", watched)
    for function, expected in zip(functions, whole, strict=True):
        # A component that nearly cancels is only as exact as the terms of its sum, which have the size of the largest.
        torch.testing.assert_close(function(), expected, rtol=1e-12, atol=1e-13 * float(expected.abs().max()))
    assert largest == len(pool)
