"""Matched fields, symmetric and Sinkhorn normalization, and the potential form, against loops over windows."""

import math

import pytest
import torch
from oracles.matching import literal_matched_drift

from truedrift import drift
from truedrift.errors import UserError

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


def enumerate_potential(n, estimator):
    """E[V⁺] at x = 0.2 of n draws from a pool of three, over all 3ⁿ samples."""
    pool = torch.tensor([[0.0], [0.7], [2.1]], dtype=torch.float64)
    draws = pool[torch.cartesian_prod(*[torch.arange(3)] * n).view(-1, n)]
    x = torch.full((len(draws), 1, 1), 0.2, dtype=torch.float64)
    options = {"tau": 0.8, "form": "potential", "estimator_pos": estimator, "estimator_neg": estimator}
    found = drift(x, draws, torch.zeros_like(draws), **options)
    return float((found.T_pos - x).mean())


def test_corrected_potential_has_a_bias_of_second_order():
    """By enumeration: the bias of the ratio falls as 1/n, and as 1/n² with the general correction."""
    pool = torch.tensor([0.0, 0.7, 2.1], dtype=torch.float64)
    r = (pool - 0.2).abs()
    k, sharp = torch.exp(-r / 0.8), 0.8 * (r + 0.8) * torch.exp(-r / 0.8)
    limit = float((k * (pool - 0.2)).sum() / sharp.sum())
    bias = {name: [abs(enumerate_potential(n, name) - limit) for n in (5, 10)] for name in ("standard", "abc")}
    slopes = {name: math.log2(fine / coarse) for name, (coarse, fine) in bias.items()}
    assert slopes["standard"] == pytest.approx(-1, abs=0.15)
    assert slopes["abc"] < -1.75


ERRORS = {
    "one positive": ({"n": 1}, "matched is True with 1 positives and 4 negatives per query; both must be at least 2"),
    "own columns": ({"self_mask": torch.arange(5)}, "self_mask is a tensor of columns with matched=True"),
    "one mask": ({"mask_pos": torch.ones(6, dtype=torch.bool)}, "mask_pos is given with matched=True; both sides must"),
    "masks of different sizes": (
        {"mask_pos": torch.arange(6) % 3 > 0, "mask_neg": torch.ones(3, dtype=torch.bool), "m": 3},
        "mask_pos and mask_neg leave windows of different sizes; matched=True requires equal sizes",
    ),
    "unequal windows": (
        {"mask_pos": torch.arange(6) > 0, "mask_neg": torch.ones(3, dtype=torch.bool), "m": 3},
        "mask_pos leaves from 2 to 3 references in windows of 3; every window must keep the same number",
    ),
    "sums over negatives": (
        {"normalization": "bidirectional", "self_mask": True, "m": 5},
        "normalization is 'bidirectional' with matched=True; its sums over the queries contain the negatives; "
        "pass 'row' or 'symmetric', or use fresh negatives",
    ),
}


@pytest.mark.parametrize("which", ERRORS)
def test_fields_that_cannot_be_matched_are_rejected(which):
    given, message = ERRORS[which]
    options = dict(given)
    x, y_pos, y_neg = sides(5, options.pop("n", 6), options.pop("m", 4))
    with pytest.raises(UserError, match=message):
        drift(x, y_pos, y_neg, tau=0.6, matched=True, **options)


def test_equally_masked_sides_equal_sides_without_the_masked_references():
    x, y_pos, y_neg = sides(4, 8, 4)
    masks = {"mask_pos": torch.arange(8) % 4 != 1, "mask_neg": torch.arange(4) != 2}
    V = drift(x, y_pos, y_neg, tau=0.6, matched=True, **masks).V
    expected = drift(x, y_pos[masks["mask_pos"]], y_neg[masks["mask_neg"]], tau=0.6, matched=True).V
    torch.testing.assert_close(V, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(("normalization", "form"), [("sinkhorn", "product"), ("symmetric", "potential")])
def test_pairs_without_a_meaning_are_rejected(normalization, form):
    message = f"normalization is '{normalization}' with form '{form}'; must be one of row"
    with pytest.raises(UserError, match=message):
        drift(*sides(4, 5, 6), tau=0.6, normalization=normalization, form=form)
    with pytest.raises(UserError, match=r"kernel is .* with form 'potential'; the potential needs the integral"):
        drift(*sides(4, 5, 6), tau=0.6, form="potential", kernel=lambda x, y, tau: -torch.cdist(x, y) / tau)


@pytest.mark.parametrize(
    ("normalization", "form"), [("row", "product"), ("symmetric", "product"), ("row", "potential")]
)
@pytest.mark.parametrize("n", [4, 5, 10])
def test_matched_fields_move_and_turn_with_the_points(normalization, form, n):
    x, y_pos, _ = sides(6, n, 1)
    options = {"tau": 0.7, "normalization": normalization, "form": form, "self_mask": True, "matched": True}
    R = torch.linalg.qr(points(3, 3, seed=9))[0]
    shift = torch.tensor([3.0, -1.0, 20.0], dtype=torch.float64)
    V = drift(x, y_pos, x, **options).V
    moved = drift(x @ R.T + shift, y_pos @ R.T + shift, x @ R.T + shift, **options).V
    torch.testing.assert_close(moved, V @ R.T, rtol=1e-10, atol=1e-12)
