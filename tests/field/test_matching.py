"""Matched fields, symmetric and Sinkhorn normalization, and the potential form, against loops over windows."""

import pytest
import torch
from oracles.matching import literal_matched_drift

from truedrift import drift

SIZES = [(5, 5), (8, 4), (4, 8), (9, 6), (6, 5), (5, 6), (12, 3)]


def points(*shape, seed=0, shift=0.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def sides(B, n, m, seed=0):
    """Queries, positives and negatives, asymmetric, in three dimensions."""
    return (
        points(B, 3, seed=seed),
        points(n, 3, seed=seed + 1, shift=0.4),
        points(m, 3, seed=seed + 2, shift=-0.2).exp(),
    )


@pytest.mark.parametrize("estimator", ["standard", "abc", "abc2", "jackknife"])
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("form", ["separate", "product"])
@pytest.mark.parametrize("normalization", ["row", "symmetric"])
def test_independent_negatives(estimator, n, m, form, normalization):
    x, y_pos, y_neg = sides(4, n, m)
    options = {"tau": 0.6, "normalization": normalization, "form": form}
    V = drift(x, y_pos, y_neg, estimator_pos=estimator, estimator_neg=estimator, matched=True, **options).V
    expected = literal_matched_drift(x, y_pos, y_neg, estimator=estimator, **options)
    torch.testing.assert_close(V, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize(("n", "g"), [(6, 6), (12, 5), (5, 6), (3, 7), (4, 7), (8, 5), (2, 9)])
@pytest.mark.parametrize("form", ["separate", "product"])
@pytest.mark.parametrize("normalization", ["row", "symmetric"])
def test_negatives_that_are_the_queries(estimator, n, g, form, normalization):
    x, y_pos, _ = sides(g, n, 1)
    options = {"tau": 0.6, "normalization": normalization, "form": form}
    chosen = {"estimator_pos": estimator, "estimator_neg": estimator}
    V = drift(x, y_pos, x, matched=True, self_mask=True, **options, **chosen).V
    expected = literal_matched_drift(x, y_pos, x, estimator=estimator, own=True, **options)
    torch.testing.assert_close(V, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("normalization", ["bidirectional", "bidirectional-loo", "sinkhorn"])
@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize(("n", "m"), [(4, 4), (8, 4), (4, 8), (6, 4)])
@pytest.mark.parametrize("form", ["separate", "product"])
def test_normalizations_over_queries_with_independent_negatives(normalization, estimator, n, m, form):
    if normalization == "sinkhorn" and form == "product":
        pytest.skip("sinkhorn has no product form")
    x, y_pos, y_neg = sides(5, n, m)
    options = {"tau": 0.8, "normalization": normalization, "form": form}
    V = drift(x, y_pos, y_neg, estimator_pos=estimator, estimator_neg=estimator, matched=True, **options).V
    expected = literal_matched_drift(x, y_pos, y_neg, estimator=estimator, **options)
    torch.testing.assert_close(V, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("normalization", ["symmetric", "sinkhorn"])
@pytest.mark.parametrize("own", [False, True])
def test_new_normalizations_without_windows(normalization, own):
    x, y_pos, y_neg = sides(5, 4, 7)
    y_neg = x if own else y_neg
    options = {"tau": 0.8, "normalization": normalization}
    V = drift(x, y_pos, y_neg, self_mask=own, **options).V
    if own and normalization == "sinkhorn":
        T_neg = masked_sinkhorn_centroid(x, 0.8)
        positive = literal_matched_drift(x, y_pos, torch.zeros(2, 3, dtype=x.dtype), matched=False, **options)
        torch.testing.assert_close(V - positive, -T_neg, rtol=1e-9, atol=1e-9)
        return
    expected = literal_matched_drift(x, y_pos, y_neg, own=own, matched=False, **options)
    torch.testing.assert_close(V, expected, rtol=1e-9, atol=1e-12)


def masked_sinkhorn_centroid(x, tau):
    """ABC of the rows of the coupling of x with itself, without the diagonal."""
    K = torch.exp(-torch.cdist(x, x) / tau).fill_diagonal_(0)
    u = 1 / K.sum(1)
    for _ in range(20):
        v = 1 / (u @ K)
        u = 1 / (K @ v)
    P = u[:, None] * K * v
    return (P * (1 - P.square().sum(1, keepdim=True) + P)) @ x


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_potential_form(kernel, estimator, matched, own):
    x, y_pos, y_neg = sides(6, 8, 4)
    y_neg = x if own else y_neg
    chosen = {"estimator_pos": estimator, "estimator_neg": estimator, "self_mask": own}
    V = drift(x, y_pos, y_neg, tau=0.9, form="potential", kernel=kernel, matched=matched, **chosen).V
    options = {"form": "potential", "kernel": kernel, "estimator": estimator, "own": own, "matched": matched}
    torch.testing.assert_close(V, literal_matched_drift(x, y_pos, y_neg, tau=0.9, **options), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
def test_potential_field_is_the_gradient_of_a_log_density(kernel):
    x, y_pos, y_neg = sides(4, 6, 5)
    x.requires_grad_()
    tau = 0.7

    def log_density(y):
        r = torch.cdist(x, y)
        return (torch.log(tau * (r + tau)) - r / tau if kernel == "laplace" else -r.square() / (2 * tau**2)).logsumexp(
            -1
        )

    (gradient,) = torch.autograd.grad((log_density(y_pos) - log_density(y_neg)).sum(), x)
    chosen = {"estimator_pos": "standard", "estimator_neg": "standard"}
    V = drift(x.detach(), y_pos, y_neg, tau=tau, form="potential", kernel=kernel, **chosen).V
    torch.testing.assert_close(V, gradient, rtol=1e-11, atol=1e-13)
