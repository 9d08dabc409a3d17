"""The loss of the general path against the literal loop over class, scale and temperature, gradient included."""

import itertools

import pytest
import torch
from oracles.drift_loss import literal_drift_loss
from oracles.feature_groups import feature_groups, loss_and_gradient
from oracles.field import literal_drift
from torch.autograd import forward_ad

from truedrift.centroids import ABC, StratifiedABC
from truedrift.field import CENTROID_FORMS, JOINT_NORMALIZATIONS
from truedrift.objective import drift_loss

SCALES = {
    "standardize-l2": {"feature_scale": "standardize-l2"},
    "mean-distance": {"feature_scale": "mean-distance"},
    "mean-distance over the batch": {"feature_scale": "mean-distance", "scale_over_batch": True},
    "none": {"feature_scale": "none", "temperatures": (0.3, 1.0, 4.0)},
}
SIZES = [(1, 3), (2, 1), (4, 6), (5, 5)]
"""(n, m): (1, m) has no negatives, and (2, m) has columns that are empty without the own query."""


def general(gen, pos, neg=None, **options):
    return drift_loss(gen, pos, neg, path="general", **options).loss


def assert_same(actual, expected, relative=1e-10):
    (loss, gradient), (expected_loss, expected_gradient) = actual, expected
    assert (loss - expected_loss).abs().max() <= relative * expected_loss.abs().max()
    assert (gradient - expected_gradient).norm() <= relative * expected_gradient.norm()


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_matches_the_literal_loop(normalization, form, u, scale):
    both_and_one = [(True, True), (False, True)]
    neither = [(True, False), (False, False)] if scale == SCALES["standardize-l2"] else []
    for (n, m), (abc_pos, abc_neg) in itertools.product(SIZES, both_and_one + neither):
        gen, pos, neg, weight_neg = feature_groups(n, m, u)
        options = {"normalization": normalization, "form": form, "weight_neg": weight_neg, **scale}
        literal = {"abc_pos": abc_pos, "abc_neg": abc_neg}
        named = {f"estimator_{side}": "abc" if literal[f"abc_{side}"] else "standard" for side in ("pos", "neg")}
        expected = loss_and_gradient(literal_drift_loss, gen, pos, neg, **literal, **options)
        assert_same(loss_and_gradient(general, gen, pos, neg, **named, **options), expected)


def test_defaults_match_the_definition():
    gen, pos, _, _ = feature_groups(5, 7)
    expected = literal_drift_loss(
        gen,
        pos,
        temperatures=(0.02, 0.05, 0.2),
        normalization="bidirectional",
        form="product",
        abc_pos=True,
        abc_neg=True,
        feature_scale="standardize-l2",
    )
    torch.testing.assert_close(drift_loss(gen, pos).loss, expected, rtol=1e-10, atol=0)


def test_the_options_differ():
    """Negative control of the tests above: no two of the options give the same loss or gradient."""
    gen, pos, neg, weight_neg = feature_groups(5, 7, 3)
    found = [
        loss_and_gradient(general, gen, pos, neg, **options)
        for options in (
            {"weight_neg": weight_neg},
            {},
            {"normalization": "row"},
            {"normalization": "bidirectional-loo"},
            {"form": "separate"},
            {"estimator_pos": "standard"},
            {"estimator_neg": "standard"},
            {"feature_scale": "mean-distance"},
            {"feature_scale": "mean-distance", "scale_over_batch": True},
            {"temperatures": (0.02, 0.05)},
        )
    ]
    for (loss, gradient), (other_loss, other_gradient) in itertools.combinations(found, 2):
        assert (loss - other_loss).abs().max() > 1e-4
        assert (gradient - other_gradient).norm() > 1e-3 * gradient.norm()


@pytest.mark.parametrize("estimator", ["abc", "abc2", "jackknife"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_loss_matches_literal_fields(normalization, form, estimator):
    """Every estimator against the oracle of the field: relative masses, RMS, sum over temperatures."""
    gen, pos, _, _ = feature_groups(4, 5)
    x, y = gen[0, 1], pos[0, 1]
    V = torch.zeros_like(x)
    for tau in (0.5, 2.0):
        field = literal_drift(
            x,
            y,
            x,
            tau=tau,
            normalization=normalization,
            estimator_pos=estimator,
            estimator_neg=estimator,
            use_neg=~torch.eye(4, dtype=torch.bool),
        )
        mass = (field.log_mass - field.log_mass.max()).exp().unsqueeze(1) if form == "product" else 1
        V_tau = mass * field.V
        V += V_tau / (V_tau.square().mean() + 1e-8).sqrt()
    found = general(
        gen,
        pos,
        temperatures=(0.5, 2.0),
        normalization=normalization,
        form=form,
        estimator_pos=estimator,
        estimator_neg=estimator,
        feature_scale="none",
    )
    torch.testing.assert_close(found[0, 1], V.square().mean(), rtol=1e-10, atol=0)


def test_gradient_is_the_field():
    """Without scaling, ∂loss/∂x = −2V/(nD) and the loss is mean V², so a gradient step moves along V."""
    gen, pos, _, _ = feature_groups(4, 5)
    gen.requires_grad_()
    loss = general(gen, pos, feature_scale="none", temperatures=(1.0,), form="separate")
    loss.sum().backward()
    V = -gen.grad * 4 * 6 / 2
    torch.testing.assert_close(V.square().mean((-2, -1)), loss)
    torch.testing.assert_close(V.square().mean((-2, -1)).sqrt(), torch.ones(2, 2).double(), rtol=1e-6, atol=0)
    toward_pos = (pos.mean(-2, keepdim=True) - gen) * V
    assert toward_pos.sum((-2, -1)).min() > 0


def test_gradient_keeps_its_digits_with_large_features():
    """Scaling lengths and temperatures by 2³⁰ does not change the unit fields; x + V would lose them in float32."""
    gen, pos, _, _ = (side if side is None else side.float() for side in feature_groups(4, 5))
    expected = loss_and_gradient(general, gen, pos, feature_scale="none", temperatures=(1.0,))
    found = loss_and_gradient(general, gen * 2**30, pos * 2**30, feature_scale="none", temperatures=(2.0**30,))
    assert_same(found, expected, 1e-6)
    assert (gen * 2**30 + 1 == gen * 2**30).any()  # negative control: that sum is rounded away


@pytest.mark.parametrize("temperatures", [(0.05,), (0.02, 0.05), (0.02, 0.05, 0.2)])
def test_loss_lies_between_zero_and_the_square_of_the_temperatures(temperatures):
    """The sum of T unit fields has a mean square of at most T², and of 1 for one temperature."""
    gen, pos, _, _ = feature_groups(5, 7)
    loss = general(gen, pos, temperatures=temperatures)
    assert loss.min() > 0
    assert loss.max() <= len(temperatures) ** 2
    if len(temperatures) == 1:
        torch.testing.assert_close(loss, torch.ones(2, 2).double(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("path", ["general", "gram"])
def test_gradient_reaches_the_generated_features_only(path):
    gen, pos, neg, weight_neg = feature_groups(5, 7, 3)
    for side in (pos, neg, weight_neg):
        side.requires_grad_()
    loss = drift_loss(gen, pos, neg, weight_neg=weight_neg, path=path).loss
    assert not loss.requires_grad
    gen.requires_grad_()
    drift_loss(gen, pos, neg, weight_neg=weight_neg, path=path).loss.sum().backward()
    assert gen.grad.abs().max() > 0
    assert pos.grad is neg.grad is weight_neg.grad is None


@pytest.mark.parametrize("path", ["general", "gram"])
def test_permuting_samples(path):
    gen, pos, neg, weight_neg = feature_groups(5, 7, 3)
    options = {"path": path, "weight_neg": weight_neg}

    def loss_of(gen, pos, neg, **options):
        return drift_loss(gen, pos, neg, **options).loss

    loss, gradient = loss_and_gradient(loss_of, gen, pos, neg, **options)
    order = torch.tensor([3, 0, 4, 2, 1])
    moved = loss_and_gradient(loss_of, gen[:, :, order], pos.flip(2), neg, **options)
    assert_same(moved, (loss, gradient[:, :, order]), 1e-9)


# ---- unconditional negatives ---------------------------------------------------------------------------------------


def test_weights_of_negatives_broadcast():
    gen, pos, neg, _ = feature_groups(4, 5, 3)
    of_one = torch.tensor([0.5, 1.0, 2.0])
    expected = literal_drift_loss(gen, pos, neg, weight_neg=of_one.double().expand(2, 2, 3))
    for weight in (of_one, of_one.double().expand(2, 1, 3), of_one.expand(2, 2, 3)):
        torch.testing.assert_close(general(gen, pos, neg, weight_neg=weight), expected, rtol=1e-10, atol=0)
    ones = literal_drift_loss(gen, pos, neg)
    for weight in (None, 1, 1.0, torch.tensor(1.0), torch.ones(3)):
        torch.testing.assert_close(general(gen, pos, neg, weight_neg=weight), ones, rtol=1e-10, atol=0)
    assert (ones - expected).abs().max() > 1e-3


@pytest.mark.parametrize("path", ["general", "gram"])
def test_weight_zero_equals_absence_with_row_normalization(path):
    gen, pos, neg, _ = feature_groups(4, 5, 3)
    options = {"normalization": "row", "form": "separate", "path": path}
    without = drift_loss(gen, pos, **options).loss
    torch.testing.assert_close(drift_loss(gen, pos, neg, weight_neg=0.0, **options).loss, without, rtol=1e-10, atol=0)
    assert (drift_loss(gen, pos, neg, weight_neg=0.1, **options).loss - without).abs().max() > 1e-6


def test_abc_is_stratified_with_two_pools():
    gen, pos, neg, weight_neg = feature_groups(4, 5, 3)
    strata = StratifiedABC(torch.tensor([0, 0, 0, 0, 1, 1, 1]))
    by_name = general(gen, pos, neg, weight_neg=weight_neg)
    for estimator in (ABC(), strata):
        found = general(gen, pos, neg, weight_neg=weight_neg, estimator_neg=estimator)
        torch.testing.assert_close(found, by_name, rtol=0, atol=0)
    one_pool = StratifiedABC(torch.zeros(7, dtype=torch.long))
    assert (general(gen, pos, neg, weight_neg=weight_neg, estimator_neg=one_pool) - by_name).abs().max() > 1e-4


@pytest.mark.parametrize("estimator", ["abc2", "jackknife", "bootstrap"])
def test_other_corrections_reject_two_pools(estimator):
    gen, pos, neg, _ = feature_groups(4, 5, 3)
    with pytest.raises(
        ValueError, match=f"estimator_neg is '{estimator}' with unconditional negatives; its correction"
    ):
        drift_loss(gen, pos, neg, estimator_neg=estimator)
    generator = torch.Generator().manual_seed(0)
    assert torch.isfinite(drift_loss(gen, pos, neg, estimator_pos=estimator, generator=generator).loss).all()


# ---- leading dimensions, dtypes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["general", "gram"])
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_groups_are_independent(leading, path):
    """With any leading dimensions, every group has the same loss as alone."""
    generator = torch.Generator().manual_seed(0)
    gen, pos, neg = (
        torch.randn(*leading, rows, 6, generator=generator, dtype=torch.float64) + rows for rows in (4, 5, 3)
    )
    weight_neg = torch.rand(*leading, 3, generator=generator, dtype=torch.float64)
    together = drift_loss(gen, pos, neg, weight_neg=weight_neg, path=path)
    assert together.loss.shape == leading
    assert together.report.force.shape == (*leading, 3)
    assert together.report.spread.shape == leading
    for group in itertools.product(*map(range, leading)):
        alone = drift_loss(gen[group], pos[group], neg[group], weight_neg=weight_neg[group], path=path)
        torch.testing.assert_close(together.loss[group], alone.loss, rtol=1e-12, atol=0)
        torch.testing.assert_close(together.report.force[group], alone.report.force, rtol=1e-12, atol=0)
        torch.testing.assert_close(together.report.n_eff_neg[group], alone.report.n_eff_neg, rtol=1e-12, atol=0)


@pytest.mark.parametrize("path", ["general", "gram"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features(dtype, path):
    """Widened to float32 first: the loss is float32 and equals that of the rounded features."""
    gen, pos, neg, _ = (each if each is None else each.to(dtype) for each in feature_groups(5, 7, 3))
    gen.requires_grad_()
    found = drift_loss(gen, pos, neg, path=path)
    found.loss.sum().backward()
    exact, gradient = loss_and_gradient(general, gen.double(), pos.double(), neg.double())
    assert found.loss.dtype == torch.float32
    assert gen.grad.dtype == dtype
    torch.testing.assert_close(found.loss.double(), exact, rtol=1e-4, atol=0)
    assert gen.grad.shape == gradient.shape


@pytest.mark.parametrize("path", ["general", "gram"])
def test_loss_has_the_wider_dtype_of_gen_and_pos(path):
    gen, pos, _, _ = feature_groups(5, 7)
    for dtype, other in ((torch.float32, torch.float64), (torch.float64, torch.float32)):
        found = drift_loss(gen.to(dtype), pos.to(other), path=path).loss
        assert found.dtype is torch.float64
        expected = drift_loss(gen.to(dtype).double(), pos.to(other).double(), path=path).loss
        assert torch.equal(found, expected)


@pytest.mark.parametrize("path", ["general", "gram"])
def test_autocast_changes_nothing(path):
    gen, pos, neg, weight_neg = (each.float() for each in feature_groups(5, 7, 3))

    def loss_of(gen, *rest, **options):
        return drift_loss(gen, *rest, **options).loss

    options = {"weight_neg": weight_neg, "path": path}
    expected = loss_and_gradient(loss_of, gen, pos, neg, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (gen @ gen.mT).dtype == torch.bfloat16  # autocast is on
        found = loss_and_gradient(loss_of, gen, pos, neg, **options)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("path", ["general", "gram"])
def test_inputs_are_not_changed(path):
    sides = feature_groups(5, 7, 3)
    before = [side.clone() for side in sides]
    gen, pos, neg, weight_neg = sides
    drift_loss(gen, pos, neg, weight_neg=weight_neg, path=path).report.summary()
    assert all(torch.equal(side, kept) for side, kept in zip(sides, before, strict=True))


def permuted(features):
    return features.permute(2, 1, 0, 3).contiguous().permute(2, 1, 0, 3)


def column_major(features):
    return features.mT.contiguous().mT


def every_other(features):
    return features.repeat_interleave(2, dim=-1)[..., ::2]


@pytest.mark.parametrize("layout", [permuted, column_major, every_other])
@pytest.mark.parametrize("path", ["general", "gram"])
def test_layout_in_memory_does_not_matter(path, layout):
    sides = feature_groups(5, 7, 3)[:3]
    expected = loss_and_gradient(lambda *s: drift_loss(*s, path=path).loss, *sides)
    gen, pos, neg = (layout(side) for side in sides)
    assert not gen.is_contiguous()
    leaf = gen.requires_grad_()
    loss = drift_loss(leaf, pos, neg, path=path).loss
    (gradient,) = torch.autograd.grad((torch.arange(1, 5).view(2, 2) * loss).sum(), leaf)
    assert_same((loss.detach(), gradient), expected)


@pytest.mark.parametrize("path", ["general", "gram"])
def test_expanded_groups(path):
    """One set of positives for all classes, as a view without memory of its own."""
    gen, pos, _, _ = feature_groups(5, 7)
    shared = pos[:1].expand(2, 2, 7, 6)
    expected = drift_loss(gen, shared.clone(), path=path).loss
    torch.testing.assert_close(drift_loss(gen, shared, path=path).loss, expected, rtol=0, atol=0)
    same = gen[:1].expand(2, 2, 5, 6).requires_grad_()
    loss = drift_loss(same, pos, path=path).loss
    torch.testing.assert_close(loss, drift_loss(same.clone(), pos, path=path).loss, rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(loss.sum(), same)
    assert gradient.shape == same.shape


@pytest.mark.parametrize("path", ["general", "gram"])
def test_inference_mode(path):
    gen, pos, _, _ = feature_groups(5, 7)
    expected = drift_loss(gen, pos, path=path)
    with torch.inference_mode():
        found = drift_loss(gen, pos, path=path)
        assert torch.equal(found.loss, expected.loss)
        assert torch.equal(found.report.n_eff_pos, expected.report.n_eff_pos)


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
def test_report_is_read_outside_inference_mode(kernel):
    gen, pos, _, _ = feature_groups(5, 7)
    expected = drift_loss(gen, pos, kernel=kernel).report.n_eff_pos
    with torch.inference_mode():
        report = drift_loss(gen, pos, kernel=kernel).report
    assert torch.equal(report.n_eff_pos, expected)


# ---- function transforms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_vmap_equals_batch(normalization, form):
    gen, pos, neg, weight_neg = feature_groups(5, 7, 3)
    options = {"normalization": normalization, "form": form}
    found = torch.func.vmap(torch.func.vmap(lambda g, p, y, w: drift_loss(g, p, y, weight_neg=w, **options).loss))(
        gen, pos, neg, weight_neg
    )
    expected = drift_loss(gen, pos, neg, weight_neg=weight_neg, **options).loss
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


def test_functional_gradient_equals_autograd():
    gen, pos, _, _ = feature_groups(5, 7)
    _, expected = loss_and_gradient(lambda g, p: drift_loss(g, p).loss, gen[0], pos[0])
    found = torch.func.grad(lambda g: (torch.tensor([1.0, 2.0]).double() * drift_loss(g, pos[0]).loss).sum())(gen[0])
    assert (found - expected).norm() <= 1e-9 * expected.norm()
    per_group = torch.func.vmap(torch.func.grad(lambda g, p: drift_loss(g, p).loss))(gen[0], pos[0])
    scale = torch.tensor([1.0, 2.0]).double()[:, None, None]
    assert (scale * per_group - expected).norm() <= 1e-9 * expected.norm()


def test_estimators_that_draw_take_a_generator():
    gen, pos, _, _ = feature_groups(5, 7)

    def draw(seed, path):
        generator = torch.Generator().manual_seed(seed)
        return drift_loss(gen, pos, estimator_pos="bootstrap", path=path, generator=generator).loss

    for path in ("general", "gram"):
        assert torch.equal(draw(1, path), draw(1, path))
        assert not torch.equal(draw(1, path), draw(2, path))


def test_forward_mode_equals_reverse_mode():
    """⟨∇loss, v⟩ both ways; forward mode takes the general path, because the Gram path has only a reverse gradient."""
    generator = torch.Generator().manual_seed(5)
    gen, pos, v = (torch.randn(2, 5, 7, dtype=torch.float64, generator=generator) for _ in range(3))
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(drift_loss(forward_ad.make_dual(gen, v), pos).loss.sum()).tangent
    gen.requires_grad_()
    (gradient,) = torch.autograd.grad(drift_loss(gen, pos).loss.sum(), gen)
    torch.testing.assert_close(found, (gradient * v).sum())


@pytest.mark.parametrize("mapped", ["pos", "neg"])
def test_vmap_over_one_side_only(mapped):
    generator = torch.Generator().manual_seed(5)
    sides = {"gen": torch.randn(4, 5, generator=generator), "pos": torch.randn(3, 5, generator=generator)}
    sides["neg"] = torch.randn(2, 5, generator=generator)
    many = torch.randn(6, *sides[mapped].shape, generator=generator)
    found = torch.func.vmap(lambda side: drift_loss(**sides | {mapped: side}).loss)(many)
    expected = torch.stack([drift_loss(**sides | {mapped: side}, path="general").loss for side in many])
    torch.testing.assert_close(found, expected)
