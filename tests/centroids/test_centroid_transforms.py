"""vmap, autocast and torch.func give the same numbers as the plain call."""

import pytest
import torch
from oracles.estimators import DETERMINISTIC, DRAWING, KINDS, UNMASKED, M, random_mask

from truedrift.centroids import abc_weights, centroid

every = pytest.mark.parametrize("name", KINDS)
deterministic = pytest.mark.parametrize("name", DETERMINISTIC + UNMASKED)
ROUNDING = {"rtol": 1e-13, "atol": 1e-14}


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@deterministic
def test_vmap_over_a_leading_dimension(name):
    x, y, mask = draw(3, 4, 2), draw(3, M, 2, seed=1), random_mask(name, 3, 4)
    each = KINDS[name].make(M)

    def one(x, y, mask):
        return centroid(x, y, tau=0.5, estimator=each, mask=mask)

    torch.testing.assert_close(torch.vmap(one)(x, y, mask), one(x, y, mask), **ROUNDING)


@deterministic
def test_vmap_over_queries_and_over_temperatures(name):
    x, y, taus = draw(4, 2), draw(M, 2, seed=1), torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    each = KINDS[name].make(M)
    by_query = torch.vmap(lambda x: centroid(x[None], y, tau=0.5, estimator=each)[0])(x)
    torch.testing.assert_close(by_query, centroid(x, y, tau=0.5, estimator=each), **ROUNDING)
    by_tau = torch.vmap(lambda tau: centroid(x, y, tau=tau, estimator=each))(taus)
    looped = torch.stack([centroid(x, y, tau=float(tau), estimator=each) for tau in taus])
    torch.testing.assert_close(by_tau, looped, **ROUNDING)


@pytest.mark.parametrize("name", DRAWING)
def test_vmap_of_estimators_that_draw(name):
    log_w, each = draw(3, 4, M), KINDS[name].make(M)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gamma = torch.vmap(each.reweight, randomness="different")(log_w)
    torch.testing.assert_close(gamma.sum(-1), torch.ones(3, 4, dtype=torch.float64), **ROUNDING)
    assert bool(((gamma - gamma[0]).abs().sum((-2, -1))[1:] > 0.1).all())


@pytest.mark.parametrize("options", [{}, {"order": 2}, {"strata": torch.arange(M) % 2}], ids=str)
def test_vmap_of_abc_weights(options):
    alpha = draw(3, 4, M).softmax(-1)
    torch.testing.assert_close(
        torch.vmap(lambda a: abc_weights(a, **options))(alpha), abc_weights(alpha, **options), **ROUNDING
    )


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_has_no_effect_on_centroids(name, dtype):
    x, y = draw(9, 40, dtype=dtype), draw(M, 40, seed=1, dtype=dtype)
    options = {"tau": 0.9, "estimator": KINDS[name].make(M), "mask": random_mask(name, 9)}
    plain = centroid(x, y, generator=torch.Generator().manual_seed(3), **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = centroid(x, y, generator=torch.Generator().manual_seed(3), **options)
        assert (x @ y.T).dtype is torch.bfloat16  # autocast is on
    assert inside.dtype is dtype
    assert torch.equal(inside, plain)


@every
def test_autocast_has_no_effect_on_weights(name):
    log_w, each = draw(9, M, dtype=torch.float32), KINDS[name].make(M)
    plain = each.reweight(log_w, torch.Generator().manual_seed(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(each.reweight(log_w, torch.Generator().manual_seed(3)), plain)


@pytest.mark.parametrize("options", [{}, {"order": 2}, {"strata": torch.arange(M) % 2}], ids=str)
def test_autocast_has_no_effect_on_abc_weights(options):
    alpha = draw(9, M, dtype=torch.float32).softmax(-1)
    plain = abc_weights(alpha, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(abc_weights(alpha, **options), plain)


@deterministic
def test_functional_gradients_equal_autograd(name):
    x, y, each = draw(4, 2).requires_grad_(), draw(M, 2, seed=1), KINDS[name].make(M)

    def size(x):
        return centroid(x, y, tau=0.5, estimator=each).square().sum()

    (expected,) = torch.autograd.grad(size(x), x)
    torch.testing.assert_close(torch.func.grad(size)(x.detach()), expected, **ROUNDING)
    per_query = torch.vmap(torch.func.grad(lambda q: size(q[None])))(x.detach())
    torch.testing.assert_close(per_query, expected, rtol=1e-12, atol=1e-13)


@deterministic
def test_forward_mode_equals_reverse_mode(name):
    x, y, each = draw(2, 2), draw(M, 2, seed=1), KINDS[name].make(M)

    def T(x):
        return centroid(x, y, tau=0.5, estimator=each)

    torch.testing.assert_close(torch.func.jacfwd(T)(x), torch.func.jacrev(T)(x), rtol=1e-11, atol=1e-12)
