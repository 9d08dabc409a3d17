"""The field against the literal loop, and the meaning of each of its options."""

import itertools
import math

import pytest
import torch
from oracles.field import literal_drift

from truedrift.centroids import ABC
from truedrift.field import CENTROID_FORMS, JOINT_NORMALIZATIONS, drift

INF = math.inf
ESTIMATORS = ("standard", "abc", "abc2", "jackknife")


def samples(B=4, n=6, m=5, D=3, seed=0, dtype=torch.float64):
    """Return queries, positives and negatives with different shapes, means and scales: nothing is symmetric."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, D, generator=generator, dtype=dtype)
    y_pos = 0.5 * torch.randn(n, D, generator=generator, dtype=dtype).exp() + 0.3
    y_neg = 1.5 * torch.randn(m, D, generator=generator, dtype=dtype) - 0.4
    return x, y_pos, y_neg


def assert_is_literal(actual, expected, rtol=1e-11, atol=1e-12):
    for name in ("V", "T_pos", "T_neg", "n_eff_pos", "n_eff_neg"):
        found, right = getattr(actual, name), getattr(expected, name)
        torch.testing.assert_close(found, right, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")
    assert actual.valid.tolist() == expected.valid.tolist()
    torch.testing.assert_close(actual.log_mass[actual.valid], expected.log_mass[actual.valid], rtol=rtol, atol=atol)
    assert (actual.log_mass[~actual.valid] < -1e38).all()


@pytest.mark.parametrize(("estimator_pos", "estimator_neg"), list(itertools.product(ESTIMATORS, ESTIMATORS)))
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_matches_the_literal_loop(normalization, form, estimator_pos, estimator_neg):
    options = {
        "tau": 0.7,
        "normalization": normalization,
        "form": form,
        "estimator_pos": estimator_pos,
        "estimator_neg": estimator_neg,
    }
    for shape in ((4, 6, 5), (4, 5, 5), (1, 1, 1), (2, 1, 3)):
        data = samples(*shape)
        assert_is_literal(drift(*data, **options), literal_drift(*data, **options))


def test_defaults_match_the_paper():
    data = samples()
    expected = literal_drift(*data, tau=0.7, normalization="row", form="separate")
    assert_is_literal(drift(*data, tau=0.7), expected)
    torch.testing.assert_close(drift(*data, tau=0.7).V, expected.T_pos - expected.T_neg)


def test_attracts_to_positives_and_repels_from_negatives():
    x, y_pos, y_neg = torch.zeros(1, 1), torch.tensor([[1.0]]), torch.tensor([[-2.0]])
    assert drift(x, y_pos, y_neg, tau=1.0).V.item() == 3.0


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
def test_kernels_by_name(kernel):
    data = samples()
    assert_is_literal(drift(*data, tau=0.9, kernel=kernel), literal_drift(*data, tau=0.9, kernel=kernel))


def test_any_log_kernel():
    def cauchy(x, y, tau):
        return -torch.log1p(torch.cdist(x, y).square() / tau**2)

    x, y_pos, y_neg = samples()
    T = [torch.softmax(-(1 + torch.cdist(x, y).square() / 0.25).log(), -1).double() @ y for y in (y_pos, y_neg)]
    actual = drift(x, y_pos, y_neg, tau=0.5, kernel=cauchy, estimator_pos="standard", estimator_neg="standard")
    torch.testing.assert_close(actual.V, T[0] - T[1])


def test_estimator_of_each_side_is_independent():
    data = samples()
    plain = drift(*data, tau=0.7, estimator_pos="standard", estimator_neg="standard")
    pos = drift(*data, tau=0.7, estimator_pos="abc", estimator_neg="standard")
    neg = drift(*data, tau=0.7, estimator_pos="standard", estimator_neg=ABC())
    assert torch.equal(pos.T_neg, plain.T_neg)
    assert torch.equal(neg.T_pos, plain.T_pos)
    assert (pos.T_pos - plain.T_pos).abs().max() > 1e-2
    assert (neg.T_neg - plain.T_neg).abs().max() > 1e-2
    both = drift(*data, tau=0.7)
    torch.testing.assert_close(both.T_pos, pos.T_pos)
    torch.testing.assert_close(both.T_neg, neg.T_neg)


def test_estimators_that_draw_take_a_generator():
    data = samples()

    def draw(seed, **options):
        return drift(*data, tau=0.7, generator=torch.Generator().manual_seed(seed), **options).V

    for side in ("estimator_pos", "estimator_neg"):
        options = {side: "bootstrap"}
        assert torch.equal(draw(1, **options), draw(1, **options))
        assert not torch.equal(draw(1, **options), draw(2, **options))


# ---- the own column ------------------------------------------------------------------------------------------------


def all_but_own(B):
    return ~torch.eye(B, dtype=torch.bool)


@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_self_mask_true_leaves_each_querys_own_column_out(normalization, form):
    x, y_pos, _ = samples()
    options = {"tau": 0.7, "normalization": normalization, "form": form}
    actual = drift(x, y_pos, x, self_mask=True, **options)
    assert_is_literal(actual, literal_drift(x, y_pos, x, use_neg=all_but_own(4), **options))


def test_self_mask_is_off_by_default():
    """Even if x and y_neg are the same tensor, a query repels itself without self_mask."""
    x, y_pos, _ = samples()
    unmasked = drift(x, y_pos, x, tau=0.7)
    assert_is_literal(unmasked, literal_drift(x, y_pos, x, tau=0.7))
    assert (unmasked.V - drift(x, y_pos, x, tau=0.7, self_mask=True).V).norm(dim=1).min() > 0.1


def test_self_mask_by_column():
    """Queries 0 and 2 are the negatives 3 and 0; queries 1 and 3 are no negatives."""
    x, y_pos, y_neg = samples()
    y_neg[3], y_neg[0] = x[0], x[2]
    own = torch.tensor([3, -1, 0, -1])
    use = torch.ones(4, 5, dtype=torch.bool)
    use[0, 3] = use[2, 0] = False
    actual = drift(x, y_pos, y_neg, tau=0.7, self_mask=own)
    assert_is_literal(actual, literal_drift(x, y_pos, y_neg, tau=0.7, use_neg=use))


def test_self_mask_minus_one_masks_nothing():
    data = samples()
    nothing = drift(*data, tau=0.7, self_mask=torch.full((4,), -1))
    torch.testing.assert_close(nothing.V, drift(*data, tau=0.7).V, rtol=0, atol=0)


def test_self_mask_applies_to_every_group():
    x, y_pos, _ = (torch.stack([samples(seed=seed)[side] for seed in range(3)]) for side in range(3))
    batched = drift(x, y_pos, x, tau=0.7, self_mask=True)
    for group in range(3):
        expected = literal_drift(x[group], y_pos[group], x[group], tau=0.7, use_neg=all_but_own(4))
        torch.testing.assert_close(batched.V[group], expected.V)


def test_self_mask_and_mask_together():
    x, y_pos, _ = samples()
    mask = torch.tensor([True, True, False, True])
    actual = drift(x, y_pos, x, tau=0.7, self_mask=True, mask_neg=mask)
    assert_is_literal(actual, literal_drift(x, y_pos, x, tau=0.7, use_neg=all_but_own(4) & mask))


# ---- masks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_masks_match_the_literal_loop(normalization, estimator):
    generator = torch.Generator().manual_seed(1)
    data = samples()
    use_pos = torch.rand(4, 6, generator=generator) < 0.6
    use_neg = torch.rand(4, 5, generator=generator) < 0.6
    options = {
        "tau": 0.7,
        "normalization": normalization,
        "form": "product",
        "estimator_pos": estimator,
        "estimator_neg": estimator,
    }
    actual = drift(*data, mask_pos=use_pos, mask_neg=use_neg, **options)
    assert_is_literal(actual, literal_drift(*data, use_pos=use_pos, use_neg=use_neg, **options))


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_masking_references_equals_dropping_them(normalization):
    """A mask [n] for all queries, with NaN and infinity in the masked slots, equals fewer references."""
    x, y_pos, y_neg = samples()
    keep_pos, keep_neg = torch.tensor([0, 2, 3, 5]), torch.tensor([1, 4])
    mask_pos, mask_neg = torch.zeros(6, dtype=torch.bool), torch.zeros(5, dtype=torch.bool)
    mask_pos[keep_pos], mask_neg[keep_neg] = True, True
    fewer = drift(x, y_pos[keep_pos], y_neg[keep_neg], tau=0.7, normalization=normalization)
    y_pos[~mask_pos], y_neg[~mask_neg] = torch.nan, INF
    actual = drift(x, y_pos, y_neg, tau=0.7, normalization=normalization, mask_pos=mask_pos, mask_neg=mask_neg)
    torch.testing.assert_close(actual.V, fewer.V, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(actual.n_eff_neg, fewer.n_eff_neg)


def test_masks_broadcast_over_leading_dimensions():
    x, y_pos, y_neg = (torch.stack([samples(seed=seed)[side] for seed in range(2)]) for side in range(3))
    mask = torch.tensor([[True] * 6, [True, False, True, True, False, True]])
    of_group = drift(x, y_pos, y_neg, tau=0.7, mask_pos=mask)
    of_query = drift(x, y_pos, y_neg, tau=0.7, mask_pos=mask[:, None, :].expand(2, 4, 6))
    assert torch.equal(of_group.V, of_query.V)
    for group in range(2):
        use = mask[group].expand(4, 6)
        expected = literal_drift(x[group], y_pos[group], y_neg[group], tau=0.7, use_pos=use)
        torch.testing.assert_close(of_group.V[group], expected.V)


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_centroid_of_a_side_without_references_is_the_query(normalization, estimator):
    """Row 1 has no positives, row 2 no negatives, row 3 neither."""
    x, y_pos, y_neg = samples()
    use_pos, use_neg = torch.ones(4, 6, dtype=torch.bool), torch.ones(4, 5, dtype=torch.bool)
    use_pos[1] = use_neg[2] = use_pos[3] = use_neg[3] = False
    options = {"tau": 0.7, "normalization": normalization, "estimator_pos": estimator, "estimator_neg": estimator}
    masks = {"mask_pos": use_pos, "mask_neg": use_neg}
    separate = drift(x, y_pos, y_neg, **options, **masks)
    assert_is_literal(separate, literal_drift(x, y_pos, y_neg, use_pos=use_pos, use_neg=use_neg, **options))
    assert separate.valid.tolist() == [True, False, False, False]
    assert torch.equal(separate.T_pos[1], x[1])
    assert torch.equal(separate.V[1], x[1] - separate.T_neg[1])
    assert torch.equal(separate.V[2], separate.T_pos[2] - x[2])
    assert (separate.V[3] == 0).all()
    assert separate.n_eff_pos[1] == separate.n_eff_neg[2] == 0
    product = drift(x, y_pos, y_neg, form="product", **options, **masks)
    assert (product.V[1:] == 0).all()
    assert (product.V[0] != 0).all()


def test_field_without_negatives_is_mean_shift():
    """The separate form is then T⁺ − x: plain mean shift."""
    x, y_pos, y_neg = samples()
    actual = drift(x, y_pos, y_neg, tau=0.7, mask_neg=torch.zeros(5, dtype=torch.bool))
    alpha = torch.softmax(-torch.cdist(x, y_pos) / 0.7, 1)
    gamma = alpha * (1 - alpha.square().sum(1, keepdim=True) + alpha)
    torch.testing.assert_close(actual.V, gamma @ y_pos - x)
    assert not actual.valid.any()
