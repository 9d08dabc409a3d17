"""The Gram path against the general path, in float64 and where float32 loses digits."""

import importlib
import itertools
import math

import pytest
import torch
from oracles.feature_groups import feature_groups, loss_and_gradient

from truedrift.field import CENTROID_FORMS, JOINT_NORMALIZATIONS
from truedrift.objective import drift_loss, gram

DEFAULT = (0.02, 0.05, 0.2)
SHARP = (0.002,)


def loss_of(gen, pos, neg=None, **options):
    return drift_loss(gen, pos, neg, **options).loss


def both_paths(gen, pos, neg=None, **options):
    return (loss_and_gradient(loss_of, gen, pos, neg, path=path, **options) for path in ("gram", "general"))


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_gram_path_equals_general_path_in_float64(normalization, form, u):
    estimators = [("abc", "abc"), ("standard", "abc"), ("abc", "standard"), ("jackknife", "abc"), ("abc2", "abc")]
    estimators += [] if u else [("jackknife", "jackknife"), ("abc", "abc2")]
    for (n, m), (estimator_pos, estimator_neg) in itertools.product(((1, 3), (2, 1), (4, 6), (5, 5)), estimators):
        gen, pos, neg, weight_neg = feature_groups(n, m, u)
        options = {
            "normalization": normalization,
            "form": form,
            "estimator_pos": estimator_pos,
            "estimator_neg": estimator_neg,
            "weight_neg": weight_neg,
        }
        (loss, gradient), (expected, expected_gradient) = both_paths(gen, pos, neg, **options)
        assert (loss - expected).abs().max() <= 1e-9 * expected.abs().max()
        assert (gradient - expected_gradient).norm() <= 1e-9 * expected_gradient.norm()


def test_single_pair_has_a_force_and_no_gradient():
    """One query and one positive are opposite unit features: the force is along f, and the projection removes it."""
    gen, pos, _, _ = feature_groups(1, 1)
    for loss, gradient in both_paths(gen, pos, form="separate"):
        torch.testing.assert_close(loss, torch.full((2, 2), 9.0).double(), rtol=1e-6, atol=0)
        assert gradient.abs().max() < 1e-13
    for loss, gradient in both_paths(gen, pos, form="product"):
        assert loss.abs().max() == gradient.abs().max() == 0


# ---- where digits are lost -----------------------------------------------------------------------------------------


def hard(name, n, D):
    """Return (gen, pos) of two groups, float32 numbers stored as float64: features that are nearly or exactly equal."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(2, *shape, generator=generator)

    gen, pos = draw(n, D), 1.5 * draw(n + 3, D) + 0.3
    kind, _, size = name.partition(" ")
    if kind == "converged":
        pos = gen + float(size) * draw(n, D)
    elif kind == "permuted":
        pos = gen[:, torch.randperm(n, generator=generator)]
    elif kind == "collapsed":
        gen = draw(1, D) + 1e-4 * draw(n, D)
    elif kind == "offset":
        gen, pos = gen + 1e3, pos + 1e3
    elif kind == "constant":  # a third of the dimensions hold one number that is no binary fraction
        gen[..., ::3] = pos[..., ::3] = 0.1
    elif kind == "tiny":  # a third of the dimensions vary by less than the smallest deviation
        gen[..., ::3], pos[..., ::3] = 3e-7 * gen[..., ::3], 3e-7 * pos[..., ::3]
    if size == "equal":  # as many positives as generated features, which are standardized in place
        pos = pos[:, :n]
    return gen.double(), pos.double()


HARD = [
    "ordinary",
    "converged 1e-1",
    "converged 1e-2",
    "converged 1e-3",
    "converged 1e-4",
    "converged 1e-6",
    "permuted",
    "collapsed",
    "offset",
    "offset equal",
    "constant",
    "constant equal",
    "tiny",
    "tiny equal",
]
SHAPES = [(6, 2), (6, 16), (8, 384), (64, 384)]
HARD_SHAPES = [(name, n, D) for name in HARD for n, D in SHAPES if not (name.startswith("constant") and D == 2)]
"""Two dimensions with one constant are one dimension, which has a test of its own."""


def nearest_unit_distance(gen, pos):
    """The smallest distance between different standardized unit features."""
    both = torch.cat((gen, pos), 1)
    unit = torch.nn.functional.normalize(
        (both - both.mean(1, keepdim=True)) / both.std(1, keepdim=True).clamp_min(1e-6)
    )
    d = (unit[:, : gen.shape[1], None] - unit[:, None]).norm(dim=-1)
    return d.masked_fill(torch.eye(*d.shape[1:], dtype=torch.bool), math.inf).min().item()


@pytest.mark.parametrize("temperatures", [DEFAULT, SHARP], ids=["default", "sharp"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize(("name", "n", "D"), HARD_SHAPES)
def test_float64_where_features_are_alike(name, n, D, form, temperatures):
    """1e-9, or the rounding error of d² = 2 − 2 f·f′ if larger: 2⁻⁵² in d² is 2⁻⁵²/d in d, or 2⁻²⁶ at d = 0."""
    gen, pos = hard(name, n, D)
    (loss, gradient), (expected, expected_gradient) = both_paths(gen, pos, form=form, temperatures=temperatures)
    rounding, d = 8 * 2**-52, nearest_unit_distance(gen, pos)
    limit = max(1e-9, rounding / max(d, rounding**0.5) / min(temperatures))
    assert (loss - expected).abs().max() <= limit * expected.max()
    assert (gradient - expected_gradient).norm() <= limit * expected_gradient.norm()


@pytest.mark.parametrize("path", ["general", "gram"])
@pytest.mark.parametrize(("temperatures", "limit"), [(DEFAULT, 1e-5), (SHARP, 1e-3)], ids=["default", "sharp"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize(("name", "n", "D"), HARD_SHAPES)
def test_float32_gradient_where_features_are_alike(name, n, D, form, temperatures, limit, path):
    """float32 against the general path in float64 on the same numbers."""
    gen, pos = hard(name, n, D)
    options = {"form": form, "temperatures": temperatures}
    expected, expected_gradient = loss_and_gradient(loss_of, gen, pos, path="general", **options)
    loss, gradient = loss_and_gradient(loss_of, gen.float(), pos.float(), path=path, **options)
    assert (gradient - expected_gradient).norm() <= limit * expected_gradient.norm()
    assert (loss - expected).abs().max() <= 1e-4 * expected.max()


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("name", ["converged 1e-1", "converged 1e-3", "permuted", "collapsed", "offset", "constant"])
def test_float32_gradient_with_unconditional_negatives(name, normalization):
    gen, pos = hard(name, 8, 384)
    neg = gen.mean() + 1.2 * torch.randn(2, 5, 384, generator=torch.Generator().manual_seed(2))
    neg, options = neg.double(), {"normalization": normalization, "weight_neg": torch.linspace(0.5, 3, 5)}
    _, expected = loss_and_gradient(loss_of, gen, pos, neg, path="general", **options)
    _, found = loss_and_gradient(loss_of, gen.float(), pos.float(), neg.float(), path="gram", **options)
    assert (found - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("path", ["general", "gram"])
def test_vanishing_field_is_bounded_by_rounding(path):
    """Every query has a copy on both sides, so V is rounding error: at most 2⁻²⁴/√1e-8 of a unit field."""
    _, ordinary = loss_and_gradient(loss_of, *hard("ordinary", 8, 384), path="general")
    gen, pos = hard("permuted", 8, 384)
    neg = gen.flip(1)
    _, expected = loss_and_gradient(loss_of, gen, pos, neg, path="general")
    _, found = loss_and_gradient(loss_of, gen.float(), pos.float(), neg.float(), path=path)
    assert (found - expected).norm() <= 6e-4 * ordinary.norm()
    assert expected.norm() <= 0.1 * ordinary.norm()  # it vanishes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("path", ["general", "gram"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1])
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(("n", "D"), SHAPES)
def test_identical_features_have_no_force(n, D, more, value, path, dtype):
    """z = 0 has no direction: loss and gradient are zero, not rounding divided by the smallest deviation."""
    gen, pos = torch.full((2, n, D), value, dtype=dtype), torch.full((2, n + more, D), value, dtype=dtype)
    loss, gradient = loss_and_gradient(loss_of, gen, pos, path=path)
    assert loss.abs().max() <= 1e-12
    assert gradient.abs().max() <= 1e-12


@pytest.mark.parametrize("temperatures", [DEFAULT, SHARP], ids=["default", "sharp"])
@pytest.mark.parametrize("name", [name for name in HARD if not name.startswith("tiny")])
def test_one_dimension(name, temperatures):
    """Unit features are ±1, so every force is along f and the gradient is zero.

    A vanishing field is rounding error divided by √ε = 1e-4, about 1e-3 of a unit field in float32.
    """
    gen, pos = hard(name, 5, 1)
    both = torch.cat((gen, pos), 1)
    mean, std = both.mean(1, keepdim=True), both.std(1, keepdim=True).clamp_min(1e-6)
    if name.startswith("constant"):
        mean, std = gen - 1, torch.ones_like(std)
    unprojected = 2 * len(temperatures) / 5 / ((gen - mean).abs().clamp_min(1e-6))
    for dtype, limit in ((torch.float64, 1e-9), (torch.float32, 5e-3)):
        for path in ("general", "gram"):
            options = {"path": path, "temperatures": temperatures}
            loss, gradient = loss_and_gradient(loss_of, gen.to(dtype), pos.to(dtype), **options)
            assert gradient.norm() <= limit * unprojected.norm()
            expected, _ = loss_and_gradient(loss_of, gen, pos, path="general", temperatures=temperatures)
            assert (loss - expected).abs().max() <= max(5 * limit, 1e-6)


def test_float32_products_are_too_coarse_for_near_pairs():
    """Negative control: without the float64 products the converged gradient is not good to 1e-3."""
    gen, pos = hard("converged 1e-3", 8, 384)
    expected, expected_gradient = loss_and_gradient(loss_of, gen, pos, path="general")
    z = torch.cat((gen, pos), 1).float()
    unit = torch.nn.functional.normalize((z - z.mean(1, keepdim=True)) / z.std(1, keepdim=True), dim=-1)
    rough = (2 - 2 * unit @ unit.mT).clamp_min(0).sqrt()[:, :8, 8:].diagonal(dim1=1, dim2=2)
    exact = (unit[:, :8] - unit[:, 8:]).norm(dim=-1)
    assert ((rough - exact) / 0.02).abs().max() > 1e-3
    assert expected.min() > 0
    assert expected_gradient.norm() > 0


def test_gram_path_is_differentiable_only_once():
    gen, pos, _, _ = feature_groups(4, 5)
    gen.requires_grad_()
    (gradient,) = torch.autograd.grad(drift_loss(gen, pos).loss.square().sum(), gen, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.square().sum().backward()


# ---- blocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("elements", [1, 170])
def test_blocks_equal_one_block(monkeypatch, elements, u):
    """Blocks of one group, of two groups with a remainder, and of all groups agree to rounding, also in the report."""
    generator = torch.Generator().manual_seed(0)
    gen, pos = (torch.randn(5, rows, 6, generator=generator, dtype=torch.float64) for rows in (4, 7))
    neg = torch.randn(5, u, 6, generator=generator, dtype=torch.float64) if u else None
    weight_neg = torch.rand(5, u, generator=generator, dtype=torch.float64) if u else None
    options = {"path": "gram", "weight_neg": weight_neg}
    whole, whole_report = loss_and_gradient(loss_of, gen, pos, neg, **options), drift_loss(gen, pos, neg, **options)
    monkeypatch.setattr(gram, "BLOCK_ELEMENTS", elements)
    calls = []
    compute_block = gram._compute_block
    monkeypatch.setattr(gram, "_compute_block", lambda *a, **k: calls.append(1) or compute_block(*a, **k))
    loss, gradient = loss_and_gradient(loss_of, gen, pos, neg, **options)
    assert len(calls) > 1  # there was more than one block
    torch.testing.assert_close(loss, whole[0], rtol=1e-13, atol=0)
    torch.testing.assert_close(gradient, whole[1], rtol=1e-11, atol=1e-14)
    report, expected = drift_loss(gen, pos, neg, **options).report.summary(), whole_report.report.summary()
    for name, value in report.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=0)


def test_auto_chooses_the_path_by_scale(monkeypatch):
    """The Gram path for standardize-l2, and the general path for other scales or on request."""
    taken = []
    module = importlib.import_module("truedrift.objective.drift_loss")
    monkeypatch.setattr(module, "gram_loss", lambda *a, **k: taken.append("gram") or gram.gram_loss(*a, **k))
    gen, pos, _, _ = feature_groups(4, 5)
    drift_loss(gen, pos, feature_scale="mean-distance")
    drift_loss(gen, pos, path="general")
    assert taken == []
    drift_loss(gen, pos)
    assert taken == ["gram"]


# ---- many positives: V is formed, products among positives are not computed -----------------------------------------


@pytest.fixture
def formed_field(monkeypatch):
    """Form V for every size."""
    monkeypatch.setattr(gram, "_forms_field", lambda groups, temperatures, spec: True)


@pytest.mark.usefixtures("formed_field")
@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_formed_field_equals_general_path_in_float64(normalization, form, u):
    for n, m in ((1, 3), (2, 1), (4, 6), (5, 5), (3, 70)):
        gen, pos, neg, weight_neg = feature_groups(n, m, u)
        options = {"normalization": normalization, "form": form, "weight_neg": weight_neg}
        (loss, gradient), (expected, expected_gradient) = both_paths(gen, pos, neg, **options)
        assert (loss - expected).abs().max() <= 1e-9 * expected.abs().max()
        assert (gradient - expected_gradient).norm() <= 1e-9 * expected_gradient.norm()
        reports = [drift_loss(gen, pos, neg, path=path, **options).report for path in ("gram", "general")]
        for name in ("energy", "spread", "force", "n_eff_pos"):
            found, wanted = (getattr(report, name) for report in reports)
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("formed_field")
@pytest.mark.parametrize("options", [{"normalization": "row", "matched": True}, {"r": 4}, {"r": 4, "matched": True}])
def test_formed_field_with_windows_and_fresh_negatives(options):
    gen, pos, _, _ = feature_groups(3, 12)
    fresh = feature_groups(options["r"], 12)[0].flip(-1) if "r" in options else None
    options = {name: value for name, value in options.items() if name != "r"} | {"fresh_neg": fresh}
    (loss, gradient), (expected, expected_gradient) = both_paths(gen, pos, **options)
    assert (loss - expected).abs().max() <= 1e-9 * expected.abs().max()
    assert (gradient - expected_gradient).norm() <= 1e-9 * expected_gradient.norm()


@pytest.mark.usefixtures("formed_field")
@pytest.mark.parametrize(("temperatures", "limit"), [(DEFAULT, 1e-5), (SHARP, 1e-3)], ids=["default", "sharp"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize(("name", "n", "D"), HARD_SHAPES)
def test_float32_gradient_of_a_formed_field_where_features_are_alike(name, n, D, form, temperatures, limit):
    gen, pos = hard(name, n, D)
    options = {"form": form, "temperatures": temperatures}
    expected, expected_gradient = loss_and_gradient(loss_of, gen, pos, path="general", **options)
    loss, gradient = loss_and_gradient(loss_of, gen.float(), pos.float(), path="gram", **options)
    assert (gradient - expected_gradient).norm() <= limit * expected_gradient.norm()
    assert (loss - expected).abs().max() <= 1e-4 * expected.max()


def chosen_variants(monkeypatch, *sizes, **options):
    """Return whether V is formed, for (g, n) of every size, 3 temperatures and D = 384."""
    chosen, forms_field = [], gram._forms_field
    monkeypatch.setattr(gram, "_forms_field", lambda *sides: chosen.append(forms_field(*sides)) or chosen[-1])
    for g, n in sizes:
        drift_loss(torch.randn(1, g, 384), torch.randn(1, n, 384), path="gram", **options)
    return chosen


def test_field_is_formed_if_there_are_many_positives(monkeypatch):
    sizes = ((8, 8), (64, 64), (8, 16), (8, 126), (8, 500), (32, 500))
    assert chosen_variants(monkeypatch, *sizes) == [False, False, False, True, True, True]


def test_field_is_not_formed_with_the_symmetric_normalization(monkeypatch):
    assert chosen_variants(monkeypatch, (8, 500), normalization="symmetric") == [False]
