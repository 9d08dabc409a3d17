"""E[γ_i] against enumeration of all draws, and the bias that it gives against the exact engine."""

import itertools

import pytest
import torch

from truedrift.bias import exact_moments_by_estimator, expected_weights, pool_moments
from truedrift.centroids import abc_weights

NAMES = ("standard", "abc", "abc2")


def population(seed, N, D=2, Q=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, D, generator=generator, dtype=torch.float64) for rows in (Q, N)]


def at_temperature(x, y, tau):
    return expected_weights.References.from_log_weights(-torch.cdist(x, y) / tau, y, per_query=False)


def enumerated(log_w, name, n):
    """E[γ_i] − α*_i over all N^n draws: every draw gives its γ to the references that it drew."""
    N = len(log_w)
    total = torch.zeros(N, dtype=torch.float64)
    for draw in itertools.product(range(N), repeat=n):
        alpha = log_w[list(draw)].softmax(-1)
        gamma = alpha if name == "standard" else abc_weights(alpha, order=NAMES.index(name))
        for i, weight in zip(draw, gamma, strict=True):
            total[i] += weight / N**n
    return total - log_w.softmax(-1)


@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_enumeration_of_all_draws(tau, n):
    x, y = population(n, 4)
    s = at_temperature(x, y, tau).s
    ((_, found),) = expected_weights.deviations(s, NAMES, (n,))
    for q, name in itertools.product(range(len(x)), NAMES):
        expected = enumerated(-s[q], name, n)
        torch.testing.assert_close(found[q, :, NAMES.index(name)], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("N", "D", "tau"), [(300, 2, 0.3), (3000, 3, 0.1), (2000, 2, 0.005)])
def test_biases_agree_with_the_exact_moments(N, D, tau):
    x, y = population(N, N, D)
    n = (4, 64, 700)
    found = at_temperature(x, y, tau).biases(NAMES, n)[:, 0]
    spread = (y - y.mean(0)).square().sum(-1).mean().sqrt()
    for k, moments in enumerate(exact_moments_by_estimator(x, y, tau=tau, n=n).values()):
        assert float((found[:, k] - moments.bias).norm(dim=-1).max() / spread) < 1e-6


@pytest.mark.parametrize("N", [9, 2000])
@pytest.mark.parametrize("tau", [0.05, 1.0, 100.0])
def test_biases_above_the_floor_are_resolved(monkeypatch, N, tau):
    """The error does not fall below 1e-10 of the spread as the bias does: steps of a quarter are the reference."""
    x, y = population(N, N)
    references, n = at_temperature(x, y, tau), (4, 64, 511, 100_000, 1_000_000)
    found = references.biases(NAMES, n)
    monkeypatch.setattr(expected_weights, "GRID_STEP", expected_weights.GRID_STEP / 4)
    monkeypatch.setattr(expected_weights, "NODE_STEP", expected_weights.NODE_STEP / 4)
    better = references.biases(NAMES, n)
    spread = references.spread.view(-1, 1, 1, 1)
    error, bias = ((each.norm(dim=-1) / spread) for each in (found - better, better))
    assert bool((error <= 0.1 * expected_weights.FLOOR + 0.05 * bias).all())
    assert float(error.max()) < 1e-6
    assert float(bias.min()) < 0.01 * expected_weights.FLOOR


def test_leaving_out_a_group_equals_a_pool_without_its_references():
    x, y = population(5, 400)
    groups = torch.arange(400) % 3
    found = at_temperature(x, y, 0.2).biases(NAMES, (16,), groups)[:, :, :, 0]
    for g in range(3):
        moments = exact_moments_by_estimator(x, y[groups != g], tau=0.2, n=16)
        expected = torch.stack([each.bias[:, 0] for each in moments.values()], 1)
        torch.testing.assert_close(found[:, g], expected, rtol=0, atol=1e-6)


def test_blocks_of_queries_change_nothing(monkeypatch):
    x, y = population(6, 200, Q=7)
    references = at_temperature(x, y, 0.3)
    whole = references.biases(NAMES, (8,))
    monkeypatch.setattr("truedrift.bias.expected_weights._ELEMENTS", 2000)
    torch.testing.assert_close(references.biases(NAMES, (8,)), whole, rtol=0, atol=1e-14)


def test_the_range_of_a_cold_query_is_limited():
    """Gaps of more than e^40 are infinite; an outlier does not take the resolution from the others."""
    s = torch.tensor([[0.0, 1.0, 1e9, 1e9 + 2]], dtype=torch.float64)
    assert expected_weights.limit_range(s).tolist() == [[0.0, 1.0, 41.0, 43.0]]
    many = 50.0 * torch.arange(1000, dtype=torch.float64)[None]
    assert float(expected_weights.limit_range(many).max()) == pytest.approx(expected_weights.LONGEST)
    assert bool((expected_weights.limit_range(many).diff() > 0).all())


def test_the_closed_form_equals_that_of_theory():
    x, y = population(7, 500)
    expected = pool_moments(x, y, tau=0.4).abc_residual(32)
    torch.testing.assert_close(at_temperature(x, y, 0.4).abc_residual(32), expected, rtol=1e-9, atol=1e-15)
