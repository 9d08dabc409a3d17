"""Standardization, normalization to unit length and mean distance against their formulas."""

import pytest
import torch
from oracles.feature_groups import feature_groups

from truedrift.objective import feature_scale


def sides(n=4, m=6, u=3, D=5):
    gen, pos, neg, weight_neg = feature_groups(n, m, u, D)
    return feature_scale.Features(gen, pos, neg, weight_neg)


def test_standardized_over_generated_and_positives_of_the_group():
    features = sides()
    found = feature_scale.standardize_l2(features)
    for c in range(2):
        for s in range(2):
            counted = torch.cat((features.gen[c, s], features.pos[c, s]))
            for side in ("gen", "pos", "neg"):
                z = (getattr(features, side)[c, s] - counted.mean(0)) / counted.std(0, unbiased=True)
                unit = z / z.norm(dim=1, keepdim=True)
                torch.testing.assert_close(getattr(found, side)[c, s], unit, rtol=1e-12, atol=1e-14)


def test_unconditional_negatives_are_not_counted():
    features = sides()
    other = feature_scale.Features(features.gen, features.pos, features.neg * 100 + 7, features.weight_neg)
    assert torch.equal(feature_scale.standardize_l2(features).gen, feature_scale.standardize_l2(other).gen)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("value", [0.1, 1000.1])
def test_constant_dimension_is_exactly_zero(value, dtype):
    """The rounding error of its mean, divided by 1e-6, would be a common direction with a huge gradient."""
    features = sides().map(lambda f: f.to(dtype))
    for side in (features.gen, features.pos, features.neg):
        side[..., 2] = value
    found = feature_scale.standardize_l2(features)
    for side in (found.gen, found.pos, found.neg):
        assert (side[..., 2] == 0).all()
        assert (side[..., 0] != 0).all()


def test_smallest_deviation_is_a_millionth():
    """A dimension that varies by less than 1e-6 is divided by 1e-6."""
    features = sides()
    for side in (features.gen, features.pos, features.neg):
        side[..., 2] *= 1e-9
    found = feature_scale.standardize_l2(features)
    counted = torch.cat((features.gen[0, 0], features.pos[0, 0]))
    assert counted.std(0)[2] < 1e-6
    z = (features.gen[0, 0] - counted.mean(0)) / counted.std(0).clamp_min(1e-6)
    torch.testing.assert_close(found.gen[0, 0], z / z.norm(dim=1, keepdim=True), rtol=1e-9, atol=0)


def test_common_offset_costs_no_digits():
    """float32 features around 1000 against the same numbers in float64."""
    features = sides().map(lambda f: (f + 1e3).float())
    found, exact = (
        feature_scale.standardize_l2(features),
        feature_scale.standardize_l2(features.map(torch.Tensor.double)),
    )
    for side in ("gen", "pos", "neg"):
        assert (getattr(found, side) - getattr(exact, side)).abs().max() <= 1e-6


def test_statistics_carry_no_gradient():
    """d unit/d gen with μ and σ held fixed: the projection (I − f fᵀ)/(σ‖z‖), nothing across features."""
    features = sides(n=2, m=3, u=1, D=3)
    gen = features.gen[0, 0]
    jacobian = torch.autograd.functional.jacobian(
        lambda g: feature_scale.standardize_l2(feature_scale.Features(g, features.pos[0, 0])).gen, gen, vectorize=True
    )
    counted = torch.cat((gen, features.pos[0, 0]))
    std = counted.std(0)
    z = (gen - counted.mean(0)) / std
    for i in range(2):
        f = z[i] / z[i].norm()
        expected = (torch.eye(3).double() - torch.outer(f, f)) / z[i].norm() / std
        torch.testing.assert_close(jacobian[i, :, i], expected)
        assert (jacobian[i, :, 1 - i] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_identical_features_are_zero_with_gradient_zero(dtype):
    gen = torch.full((3, 4), 0.1, dtype=dtype, requires_grad=True)
    found = feature_scale.standardize_l2(feature_scale.Features(gen, torch.full((5, 4), 0.1, dtype=dtype)))
    assert (found.gen == 0).all()
    assert (found.pos == 0).all()
    (gradient,) = torch.autograd.grad(found.gen.sum(), gen)
    assert (gradient == 0).all()


def test_small_features_have_unit_length():
    """Deviations of 1e-12 are divided by 1e-6; features of length 1e-6 still have a direction."""
    found = feature_scale.standardize_l2(sides().map(lambda f: f * 1e-12))
    for side in (found.gen, found.pos, found.neg):
        torch.testing.assert_close(side.norm(dim=-1), torch.ones_like(side[..., 0]), rtol=1e-12, atol=0)


def test_distance_of_a_feature_to_itself_is_exactly_zero():
    gen, pos, _, _ = feature_groups(70, 3, D=40)  # so large that the square is expanded
    d = feature_scale.Features(gen, pos).distances()
    assert (d[..., :70].diagonal(dim1=-2, dim2=-1) == 0).all()


@pytest.mark.parametrize("over_batch", [False, True])
def test_mean_distance_is_one(over_batch):
    """s is the weighted mean of all distances, including a feature to itself; coordinates are divided by s/√D."""
    features = sides()
    found = feature_scale.mean_distance(features, over_batch=over_batch)
    total, weight, distances = torch.zeros(2, 2).double(), torch.zeros(2, 2).double(), {}
    for c in range(2):
        for s in range(2):
            columns = torch.cat((features.gen[c, s], features.neg[c, s], features.pos[c, s]))
            d = (features.gen[c, s][:, None] - columns).square().sum(-1).sqrt()
            w = torch.cat((torch.ones(4).double(), features.weight_neg[c, s], torch.ones(6).double()))
            total[c, s], weight[c, s], distances[c, s] = (d * w).sum(), 4 * w.sum(), d
    mean = (total.sum() / weight.sum()).expand(2, 2) if over_batch else total / weight
    for c in range(2):
        for s in range(2):
            torch.testing.assert_close(found.distances[c, s], distances[c, s] / mean[c, s])
            torch.testing.assert_close(found.features.pos[c, s], features.pos[c, s] / (mean[c, s] / 5**0.5))
    assert (mean[0, 0] != mean[1, 1]) == (not over_batch)


def test_smallest_mean_distance_is_a_thousandth():
    features = sides().map(lambda f: f * 1e-6)
    found = feature_scale.mean_distance(features)
    torch.testing.assert_close(found.distances, features.distances() / 1e-3)
    torch.testing.assert_close(found.features.gen, features.gen / 1e-3)


def test_mean_distance_carries_no_gradient():
    features = sides(u=0)
    gen = features.gen[0, 0].clone().requires_grad_()
    found = feature_scale.mean_distance(feature_scale.Features(gen, features.pos[0, 0]))
    (gradient,) = torch.autograd.grad(found.features.gen.sum(), gen)
    torch.testing.assert_close(gradient, gradient[0, 0].expand_as(gradient))
    assert not found.distances.requires_grad


def test_scale_none_leaves_features_unchanged():
    features = sides()
    found = feature_scale.scale(features, "none")
    assert found.features is features
    d = torch.cdist(features.gen, torch.cat((features.gen, features.neg, features.pos), -2))
    torch.testing.assert_close(found.distances, d)
