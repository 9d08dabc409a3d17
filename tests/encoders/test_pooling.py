"""Pooling against the literal sums, on maps of odd sides too."""

import pytest
import torch

from truedrift.encoders import pooling as pooling_module


def random_map(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def test_mean_and_deviation_are_the_literal_sums():
    features = random_map(2, 3, 4, 5)
    mean, deviation = pooling_module.pool_map(features, "mean+std")
    (alone,) = pooling_module.pool_map(features, "mean")
    for b in range(2):
        for d in range(3):
            places = features[b, d].flatten().tolist()
            m = sum(places) / 20
            assert mean[b, d].item() == pytest.approx(m, abs=1e-12)
            assert alone[b, d].item() == pytest.approx(m, abs=1e-12)
            expected = (sum((a - m) ** 2 for a in places) / 20 + 1e-8) ** 0.5
            assert deviation[b, d].item() == pytest.approx(expected, abs=1e-12)


def test_patches_are_the_quadrants_row_by_row():
    features = random_map(2, 3, 4, 6)
    literal = [
        features[..., rows, columns].mean((-2, -1))
        for rows in (slice(2), slice(2, 4))
        for columns in (slice(3), slice(3, 6))
    ]
    torch.testing.assert_close(pooling_module.pool_map(features, "patches"), literal)


def test_quadrants_of_an_odd_side_share_its_middle_line():
    features = random_map(1, 2, 7, 7)
    upper_left, upper_right, lower_left, _ = pooling_module.pool_map(features, "patches")
    torch.testing.assert_close(upper_left, features[..., :4, :4].mean((-2, -1)))
    torch.testing.assert_close(upper_right, features[..., :4, 3:].mean((-2, -1)))
    torch.testing.assert_close(lower_left, features[..., 3:, :4].mean((-2, -1)))


def test_the_gradient_of_a_constant_map_is_finite_and_zero():
    features = torch.full((2, 3, 4, 4), 0.7, requires_grad=True)
    pooling_module.pool_map(features, "mean+std")[1].sum().backward()
    assert features.grad.abs().max() < 1e-2  # without ε it would be NaN; rounding of the mean leaves 1e-7/1e-4
    zero = torch.zeros(1, 1, 2, 2, requires_grad=True)
    pooling_module.pool_map(zero, "mean+std")[1].sum().backward()
    assert torch.equal(zero.grad, torch.zeros_like(zero))


@pytest.mark.parametrize("pooling", pooling_module.POOLINGS)
def test_groups_and_their_dimensions_agree(pooling):
    groups = pooling_module.pool_maps([random_map(2, 3, 4, 4), random_map(2, 5, 2, 2)], pooling)
    assert tuple(group.shape[-1] for group in groups) == pooling_module.group_dimensions((3, 5), pooling)
    assert all(group.shape[0] == 2 for group in groups)
    torch.testing.assert_close(groups[0], pooling_module.pool_map(random_map(2, 3, 4, 4), pooling)[0])


def test_a_single_pixel_has_only_a_mean():
    pooling_module.require_map("mean", 1, 1)
    with pytest.raises(ValueError, match="pooling is 'patches' and the smallest feature map is 2×1; needs maps of "):
        pooling_module.require_map("patches", 2, 1)
