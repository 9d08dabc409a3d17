"""The published losses reproduce the numbers of their authors' code (golden data), including its clamps."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import tensor

from truedrift.objective import abc_release_loss, drift_loss, feature_scale, official_loss, published

GOLDEN = Path(__file__).parents[1] / "golden"
OFFICIAL = json.loads((GOLDEN / "official_loss.json").read_text())
RELEASE = json.loads((GOLDEN / "abc_release_loss.json").read_text())


def unit_features(gen, pos):
    """Features after standardization, with norm 1."""
    return feature_scale.standardize_l2(feature_scale.Features(gen, pos))


def assert_close_in_norm(actual, expected, relative):
    assert (actual - expected).norm() <= relative * expected.norm()


@pytest.mark.parametrize("case", OFFICIAL.values(), ids=OFFICIAL)
def test_official_loss_and_gradient(case):
    gen = tensor(case["gen"], requires_grad=True)
    neg = None if case["neg"] is None else tensor(case["neg"])
    weight = None if case["weight_neg"] is None else tensor(case["weight_neg"])
    loss = official_loss(gen, tensor(case["pos"]), neg, weight_neg=weight, temperatures=case["temperatures"])
    loss.sum().backward()
    torch.testing.assert_close(loss, tensor(case["loss"]), rtol=1e-4, atol=0)
    assert_close_in_norm(gen.grad, tensor(case["grad_of_summed_loss"]), 1e-4)


def test_official_weights_of_unconditional_negatives_matter():
    case = OFFICIAL["guided"]
    gen, pos, neg = (tensor(case[side]) for side in ("gen", "pos", "neg"))
    weighted = official_loss(gen, pos, neg, weight_neg=tensor(case["weight_neg"]))
    assert (official_loss(gen, pos, neg) / weighted - 1).abs().max() > 1e-3
    torch.testing.assert_close(official_loss(gen, pos, neg), official_loss(gen, pos, neg, weight_neg=torch.ones(2, 3)))


@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize("case", RELEASE.values(), ids=RELEASE)
def test_abc_release_loss_and_gradient(case, estimator):
    gen, labels = tensor(case["features_gen"], requires_grad=True), tensor(case["labels"])
    loss = abc_release_loss(
        gen, tensor(case["features_pos"]), labels, labels, temperatures=case["temperatures"], abc=estimator == "abc"
    )
    loss.backward()
    assert loss.item() == pytest.approx(case[estimator]["loss"], rel=1e-4)
    assert_close_in_norm(gen.grad, tensor(case[estimator]["grad"]), 1e-4)


@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize("case", RELEASE.values(), ids=RELEASE)
def test_abc_release_fields_of_one_class(case, estimator):
    members = tensor(case["labels"]) == 0
    features = unit_features(tensor(case["features_gen"])[0, members], tensor(case["features_pos"])[0, members])
    torch.testing.assert_close(features.gen, tensor(case["normalized_class0_scale0"]["gen"]), rtol=1e-5, atol=1e-6)
    fields = published._release_fields(features, case["temperatures"], estimator == "abc", estimator == "abc")
    for V, tau in zip(fields, case["temperatures"], strict=True):
        expected = tensor(case["V_class0_scale0"][str(tau)][estimator])
        assert (V - expected).norm() <= 1e-4 * expected.norm() + 1e-30


def test_abc_release_arithmetic_loses_temperatures_that_exact_arithmetic_keeps():
    case = RELEASE["iid_underflow"]
    members = tensor(case["labels"]) == 0
    gen, pos = (tensor(case[side])[0, members] for side in ("features_gen", "features_pos"))
    dead, crushed, alive = published._release_fields(unit_features(gen, pos), case["temperatures"], True, True)
    assert dead.abs().max() < 1e-15
    assert crushed.square().mean().sqrt() < 1e-4 < alive.square().mean().sqrt()
    force = drift_loss(gen, pos, temperatures=case["temperatures"]).report.force
    assert (force > 1e-3).all()


def test_abc_release_field_of_second_order_matches_loops():
    """V = S⁺S⁻(T⁺ − T⁻) with γ of ABC-2 from the arithmetic's own α; the features are those of the golden file."""
    case, tau = RELEASE["clustered"], 0.2
    members = tensor(case["labels"]) == 0
    features = unit_features(tensor(case["features_gen"])[0, members], tensor(case["features_pos"])[0, members])
    gen, pos = features.gen.double(), features.pos.double()
    y, n = torch.cat((gen, pos)), len(gen)
    K = torch.tensor([[0.0 if i == j else float(torch.exp(-(x - z).norm() / tau)) for j, z in enumerate(y)]
                      for i, x in enumerate(gen)], dtype=torch.float64)  # fmt: skip
    K = K / (K.sum(1, keepdim=True) * K.sum(0, keepdim=True)).sqrt()

    def side(k, references):
        a = k / k.sum()
        p_2, p_3 = (a**2).sum(), (a**3).sum()
        gamma = [a_i * (1 - p_2 + 3 * p_2**2 - 2 * p_3 + (1 - 3 * p_2) * a_i + 2 * a_i**2) for a_i in a]
        return k.sum(), sum(g * y_i for g, y_i in zip(gamma, references, strict=True))

    rows = []
    for k in K:
        (S_neg, T_neg), (S_pos, T_pos) = side(k[:n], gen), side(k[n:], pos)
        rows.append(S_pos * S_neg * (T_pos - T_neg))
    (V,) = published._release_fields(features, (tau,), 2, 2)
    assert_close_in_norm(V.double(), torch.stack(rows), 1e-4)
    (first,) = published._release_fields(features, (tau,), 1, 1)
    assert (V - first).norm() > 1e-2 * V.norm()


def test_abc_release_groups_by_label_in_any_order_and_of_any_size():
    case = RELEASE["clustered"]
    gen, pos, labels = tensor(case["features_gen"]), tensor(case["features_pos"]), tensor(case["labels"])
    options = {"temperatures": case["temperatures"], "abc": True}
    whole = abc_release_loss(gen, pos, labels, labels, **options)
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(abc_release_loss(gen[:, shuffled], pos, labels[shuffled], labels, **options), whole)

    uneven = abc_release_loss(gen[:, 1:], pos, labels[1:], labels, **options)
    each = [
        abc_release_loss(gen[s : s + 1, 1:][:, labels[1:] == c], pos[s : s + 1][:, labels == c], *of_class, **options)
        for s in range(2)
        for c in (0, 1)
        for of_class in [(labels[1:][labels[1:] == c], labels[labels == c])]
    ]
    torch.testing.assert_close(uneven, torch.stack(each).mean())


def test_abc_release_loss_is_computed_in_float32():
    case = RELEASE["clustered"]
    sides = [tensor(case[side], dtype=torch.float64)[:, :4] for side in ("features_gen", "features_pos")]
    loss = published.abc_release_groups(*sides, temperatures=(0.2,), abc=True)
    assert loss.dtype is torch.float32
    assert torch.equal(
        loss, published.abc_release_groups(*(side.float() for side in sides), temperatures=(0.2,), abc=True)
    )


def test_abc_release_weights_below_the_clamp_do_not_sum_to_one():
    """Sums below 1e-12 are clamped: α = K/1e-12, and where K underflows the centroid is 0 instead of 0/0."""
    y = tensor([[1.0, 2.0], [3.0, 4.0]])
    K = tensor([[1e-13, 3e-13], [0.0, 0.0], [0.25, 0.75]])[None]
    S, T = published._release_side(K, y, 0)
    torch.testing.assert_close(S[0, :, 0], tensor([4e-13, 0.0, 1.0]))
    torch.testing.assert_close(T[0], tensor([[1.0, 1.4], [0.0, 0.0], [2.5, 3.5]]))


def test_abc_release_normalizes_by_the_root_plus_epsilon():
    """(V / (√(mean V² + 1e-8) + 1e-8))² of a small field, where 1e-8 outside the root is 1e-4 of the divisor."""
    generator = torch.Generator().manual_seed(0)
    gen, pos = torch.randn(8, 64, generator=generator), torch.randn(8, 64, generator=generator)
    (V,) = published._release_fields(unit_features(gen, pos), (0.06,), 1, 1)
    V = V.double()
    assert 0 < V.square().mean() < 1e-8
    expected = (V / ((V.square().mean() + 1e-8).sqrt() + 1e-8)).square().mean()
    found = published.abc_release_groups(gen, pos, temperatures=(0.06,), abc=1)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=0)


def test_abc_release_ignores_positives_of_other_classes():
    gen, pos, labels = torch.randn(1, 4, 3), torch.randn(1, 6, 3), tensor([0, 0, 5, 5])
    options = {"temperatures": (0.5,), "abc": True}
    found = abc_release_loss(gen, pos, labels, tensor([0, 3, 5, 0, 5, 9]), **options)
    expected = abc_release_loss(gen, pos[:, [0, 2, 3, 4]], labels, tensor([0, 5, 0, 5]), **options)
    assert torch.equal(found, expected)


def test_autocast_has_no_effect_on_published_losses():
    gen, pos = torch.randn(2, 4, 64), torch.randn(2, 5, 64)
    losses = official_loss(gen, pos), published.abc_release_groups(gen, pos, temperatures=(0.5,), abc=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(official_loss(gen, pos), losses[0])
        assert torch.equal(published.abc_release_groups(gen, pos, temperatures=(0.5,), abc=1), losses[1])


def test_abc_release_fields_with_one_side_corrected_add_up():
    """V is linear in the centroids: V(both) + V(none) = V(positives alone) + V(negatives alone)."""
    generator = torch.Generator().manual_seed(5)
    gen = torch.randn(2, 3, 5, 6, generator=generator, dtype=torch.float64)
    pos = torch.randn(2, 3, 7, 6, generator=generator, dtype=torch.float64) * 1.5 + 0.3
    features = unit_features(gen.float(), pos.float())
    V = {(p, n): published._release_fields(features, (0.2, 0.7), p, n) for p in (True, False) for n in (True, False)}
    torch.testing.assert_close(V[True, True] + V[False, False], V[True, False] + V[False, True])
    for one, other in itertools.combinations(V.values(), 2):
        assert not torch.allclose(one, other)
    losses = {
        sides: published.abc_release_groups(gen, pos, temperatures=(0.2, 0.7), abc=sides[0], abc_neg=sides[1])
        for sides in V
    }
    both = published.abc_release_groups(gen, pos, temperatures=(0.2, 0.7), abc=True)
    assert torch.equal(both, losses[True, True])
    assert not torch.allclose(losses[True, False], losses[False, True])


def test_class_without_positives_is_an_error():
    gen, pos = torch.randn(1, 4, 3), torch.randn(1, 4, 3)
    with pytest.raises(ValueError, match=r"labels \[7\] have no positives; every generated class needs positives; add"):
        abc_release_loss(gen, pos, tensor([0, 0, 7, 7]), tensor([0, 0, 1, 1]), temperatures=(0.1,), abc=True)


def test_different_numbers_of_scales_are_an_error():
    with pytest.raises(ValueError, match="features_gen has 2 scales and features_pos has 1"):
        abc_release_loss(
            torch.randn(2, 4, 3), torch.randn(1, 4, 3), *[tensor([0, 0, 1, 1])] * 2, temperatures=(0.1,), abc=True
        )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((torch.zeros(4, 3), torch.zeros(4, 3)), r"gen has shape \[4, 3\]; must have shape \[4, rows, D\]"),
        ((torch.zeros(2, 4, 3), torch.zeros(1, 4, 3)), r"pos has shape \[1, 4, 3\]; must have shape \[2, rows, D\]"),
    ],
    ids=["no labels", "other labels"],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_of_the_official_loss(arguments, match):
    with pytest.raises(ValueError, match=match):
        official_loss(*arguments)


@pytest.mark.usefixtures("unchecked_shapes")
def test_weights_of_the_official_loss_need_negatives():
    gen = torch.zeros(2, 4, 3)
    with pytest.raises(ValueError, match=r"weight_neg has shape .*; must be None without neg"):
        official_loss(gen, gen, weight_neg=torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"weight_neg has shape \[2, 1\]; must have shape \[2, 4\]"):
        official_loss(gen, gen, gen, weight_neg=torch.ones(2, 1))


@pytest.mark.usefixtures("unchecked_shapes")
def test_one_label_per_sample_is_required():
    features, labels = torch.zeros(1, 4, 3), tensor([0, 0, 1])
    with pytest.raises(
        ValueError, match=r"labels_gen has shape \[3\] for features of shape \[4, 3\]; must have shape \[4\]"
    ):
        abc_release_loss(features, features, labels, tensor([0, 0, 1, 1]), temperatures=(0.1,), abc=True)


def test_official_loss_has_the_published_temperatures_by_default():
    case = OFFICIAL["guided"]
    gen, pos = tensor(case["gen"]), tensor(case["pos"])
    torch.testing.assert_close(official_loss(gen, pos), official_loss(gen, pos, temperatures=(0.02, 0.05, 0.2)))
    assert (official_loss(gen, pos, temperatures=(0.02, 0.05)) / official_loss(gen, pos) - 1).abs().max() > 1e-3


def test_abc_release_groups_correct_each_side_by_itself():
    case = RELEASE[min(RELEASE)]
    features = tensor(case["features_gen"]), tensor(case["features_pos"])
    orders = list(itertools.product((0, 1), repeat=2))
    losses = [
        float(
            published.abc_release_groups(*features, temperatures=case["temperatures"], abc=abc, abc_neg=abc_neg).sum()
        )
        for abc, abc_neg in orders
    ]
    assert len(set(losses)) == len(orders)
