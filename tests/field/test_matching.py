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
    "one positive": ({"n": 1}, "matched is True with 1 positive and 4 negatives per query; both must be at least 2"),
    "own columns": ({"self_mask": torch.arange(5)}, "self_mask is a tensor of columns with matched=True"),
    "one mask": (
        {"mask_pos": torch.arange(6) % 3 > 0, "m": 3},
        "the masks leave windows of 2 positives and 3 negatives; matched=True requires equal sizes",
    ),
    "a mask of some queries": (
        {"mask_neg": torch.arange(15).view(5, 3) != 7, "m": 3},
        "the masks leave windows of 3 positives and 2 negatives; matched=True requires equal sizes",
    ),
    "one mask of the queries": (
        {"mask_neg": torch.arange(5) != 2, "self_mask": True, "m": 5, "n": 4},
        "the masks leave windows of 4 positives and 3 negatives; matched=True requires equal sizes",
    ),
    "unequal windows of the queries": (
        {"mask_neg": torch.arange(5) != 2, "self_mask": True, "m": 5, "n": 2},
        "mask_neg leaves from 1 to 2 references in windows of 2; every window must keep the same number",
    ),
    "masks of different sizes": (
        {"mask_pos": torch.arange(6) % 3 > 0, "mask_neg": torch.ones(3, dtype=torch.bool), "m": 3},
        "the masks leave windows of 2 positives and 3 negatives; matched=True requires equal sizes",
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


ALL = {"row": ("separate", "product", "potential"), "symmetric": ("separate", "product"), "sinkhorn": ("separate",)}
ALL |= dict.fromkeys(("bidirectional", "bidirectional-loo"), ("separate", "product"))
weightings = pytest.mark.parametrize(("normalization", "form"), [(name, form) for name in ALL for form in ALL[name]])
per_window = pytest.mark.parametrize(
    ("normalization", "form"), [(name, form) for name in ("row", "symmetric") for form in ALL[name]]
)


def keep(*groups):
    """One mask row per query: which of the references (as digits 0 and 1) it uses."""
    return torch.tensor([[digit == "1" for digit in group] for group in groups])


MASKS = {
    "one block and two": ("101", "101101", "110", "110011", "011", "011101", "101", "110110"),
    "two blocks and one": ("110101", "101", "011110", "110", "100010", "010", "111111", "111"),
    "one window and a ring": ("1010", "100110", "1111", "111111", "0101", "010101", "1001", "011001"),
}


@weightings
@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize("which", MASKS)
def test_masked_references_are_left_out_of_their_windows(normalization, form, estimator, which):
    """Every query has another mask. In windows of four on a ring of six, each pair keeps equally many."""
    use_neg, use_pos = keep(*MASKS[which][::2]), keep(*MASKS[which][1::2])
    x, y_pos, y_neg = sides(4, use_pos.shape[1], use_neg.shape[1])
    options = {"tau": 0.8, "normalization": normalization, "form": form}
    masks = {"mask_pos": use_pos, "mask_neg": use_neg}
    V = drift(x, y_pos, y_neg, matched=True, estimator_pos=estimator, estimator_neg=estimator, **masks, **options).V
    expected = literal_matched_drift(x, y_pos, y_neg, estimator=estimator, use_pos=use_pos, use_neg=use_neg, **options)
    torch.testing.assert_close(V, expected, rtol=1e-9, atol=1e-12)
    assert (V - drift(x, y_pos, y_neg, matched=True, **options).V).abs().max() > 1e-3


def own_masks(which):
    """Masks of the positives and of five queries as negatives of each other, both given or one of them."""
    if which == "one window, both":  # each query keeps two of the four others
        return 4, keep("1010", "0110", "1100", "0011", "1001"), keep("01100", "10010", "01001", "10001", "00110")
    if which == "two windows of negatives":  # of the others i + 1, …, i + 4, one of each two
        others = ("1010", "0110", "1001", "0101", "1001")
        use_neg = torch.zeros(5, 5, dtype=torch.bool)
        for i, digits in enumerate(others):
            for t, digit in enumerate(digits):
                use_neg[i, (i + 1 + t) % 5] = digit == "1"
        return 2, keep("10", "01", "01", "10", "01"), use_neg
    n = 8 if which == "all positives" else 3
    masks = {"all positives": (torch.ones(n, dtype=torch.bool), None), "all negatives": (None, torch.ones(5) > 0)}
    return n, *masks[which]


@per_window
@pytest.mark.parametrize("which", ["one window, both", "two windows of negatives", "all positives", "all negatives"])
def test_masks_of_negatives_that_are_the_queries(normalization, form, which):
    n, use_pos, use_neg = own_masks(which)
    x, y_pos, _ = sides(5, n, 1)
    options = {"tau": 0.8, "normalization": normalization, "form": form}
    V = drift(x, y_pos, x, matched=True, self_mask=True, mask_pos=use_pos, mask_neg=use_neg, **options).V
    if which.startswith("all"):
        unmasked = drift(x, y_pos, x, matched=True, self_mask=True, **options).V
        torch.testing.assert_close(V, unmasked, rtol=1e-12, atol=1e-14)
        use_pos = use_neg = None
    expected = literal_matched_drift(x, y_pos, x, own=True, use_pos=use_pos, use_neg=use_neg, **options)
    torch.testing.assert_close(V, expected, rtol=1e-9, atol=1e-12)


@weightings
@pytest.mark.parametrize("side", ["mask_pos", "mask_neg"])
def test_a_missing_mask_means_all_references(normalization, form, side):
    x, y_pos, y_neg = sides(4, 6, 3)
    options = {"tau": 0.8, "normalization": normalization, "form": form, "matched": True}
    full = torch.ones(6 if side == "mask_pos" else 3, dtype=torch.bool)
    V, expected = drift(x, y_pos, y_neg, **{side: full}, **options).V, drift(x, y_pos, y_neg, **options).V
    torch.testing.assert_close(V, expected, rtol=1e-13, atol=1e-15)


@weightings
def test_vmap_over_masks(normalization, form):
    """Also without a check of the masks, which cannot be read: unequal ones are accepted."""
    use_neg, use_pos = keep("101", "110", "011"), keep("101101", "110011", "011101")
    x, y_pos, y_neg = sides(4, 6, 3)
    options = {"tau": 0.8, "normalization": normalization, "form": form, "matched": True}

    def field(mask_pos, mask_neg):
        return drift(x, y_pos, y_neg, mask_pos=mask_pos, mask_neg=mask_neg, **options).V

    looped = torch.stack([field(pos, neg) for pos, neg in zip(use_pos, use_neg, strict=True)])
    torch.testing.assert_close(torch.vmap(field)(use_pos, use_neg), looped, rtol=1e-12, atol=1e-13)
    unequal = keep("111", "111", "111")
    assert bool(torch.isfinite(torch.vmap(field)(use_pos, unequal)).all())
    with pytest.raises(UserError, match="the masks leave windows of 2 positives and 3 negatives; "):
        field(use_pos[0], unequal[0])


@per_window
@pytest.mark.parametrize("n", [2, 4, 5, 8])
def test_vmap_over_points(normalization, form, n):
    x, y_pos = points(3, 5, 3), points(3, n, 3, seed=1, shift=0.4)
    options = {"tau": 0.8, "normalization": normalization, "form": form, "matched": True, "self_mask": True}
    mapped = torch.vmap(lambda x, y: drift(x, y, x, **options).V)(x, y_pos)
    torch.testing.assert_close(mapped, drift(x, y_pos, x, **options).V, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("normalization", "form"), [("sinkhorn", "product"), ("symmetric", "potential")])
def test_pairs_without_a_meaning_are_rejected(normalization, form):
    forms = {"sinkhorn": "form='separate'", "symmetric": "form='separate' or form='product'"}[normalization]
    message = f"normalization is '{normalization}' with form '{form}'; must be one of row.*; .* or pass {forms}$"
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
