"""Pooling against the literal sums, on maps of odd sides too."""

import pytest
import torch

from truedrift.encoders import MapEncoder, Pixels, PixelsOptions
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


def test_locations_are_the_pixels_row_by_row():
    features = random_map(2, 3, 2, 4)
    (group,) = pooling_module.pool_map(features, "locations")
    assert group.shape == (2, 8, 3)
    for place, (row, column) in enumerate((r, c) for r in range(2) for c in range(4)):
        assert torch.equal(group[:, place], features[:, :, row, column])


def literal_statistics(features, row, column, height, width):
    """Mean and deviation [B, D] of a patch, by sums over its pixels; a patch at the border may be smaller."""
    rows, columns = range(features.shape[2])[row : row + height], range(features.shape[3])[column : column + width]
    pixels = [features[:, :, r, c] for r in rows for c in columns]
    mean = sum(pixels) / len(pixels)
    return mean, (sum((pixel - mean) ** 2 for pixel in pixels) / len(pixels) + 1e-8).sqrt()


@pytest.mark.parametrize(
    ("height", "width", "sides"),
    [(8, 8, (2, 4)), (6, 6, (2, 4)), (5, 7, (2, 4)), (4, 4, (2,)), (3, 3, (2,)), (2, 2, ())],
)
def test_the_pyramid_has_locations_patches_and_the_whole_map(height, width, sides):
    features = random_map(2, 3, height, width)
    (group,) = pooling_module.pool_map(features, "pyramid")
    expected = [pooling_module.pool_map(features, "locations")[0]]
    parts = [height * width]
    for side in sides:
        corners = [(r, c) for r in range(0, height, side) for c in range(0, width, side)]
        patches = [literal_statistics(features, *corner, side, side) for corner in corners]
        expected += [torch.stack(each, 1) for each in zip(*patches, strict=True)]
        parts += [len(corners)] * 2
    expected += [each.unsqueeze(1) for each in literal_statistics(features, 0, 0, height, width)]
    torch.testing.assert_close(group, torch.cat(expected, 1), rtol=1e-9, atol=1e-9)
    (shape,) = pooling_module.group_shapes([3], [(height, width)], ["pyramid"])
    assert shape.parts == (*parts, 1, 1)
    assert shape.size == group[0].numel()


@pytest.mark.parametrize("height", range(2, 10))
def test_every_location_changes_every_part_of_the_pyramid(height):
    features = random_map(1, 1, height, height).requires_grad_()
    (group,) = pooling_module.pool_map(features, "pyramid")
    (shape,) = pooling_module.group_shapes([1], [(height, height)], ["pyramid"])
    for part, values in enumerate(group.split(shape.parts, 1)):
        (gradient,) = torch.autograd.grad(values.square().sum(), features, retain_graph=True)
        if part % 2 == 1 or part == 0:  # locations and means; the deviation of a single location is constant
            assert (gradient != 0).all(), part


@pytest.mark.parametrize("pooling", pooling_module.POOLINGS)
def test_groups_and_their_shapes_agree(pooling):
    poolings = (pooling, "mean")
    groups = pooling_module.pool_maps([random_map(2, 3, 4, 4), random_map(2, 5, 2, 2)], poolings)
    shapes = pooling_module.group_shapes((3, 5), [(4, 4), (2, 2)], poolings)
    assert [group[0].numel() for group in groups] == [shape.size for shape in shapes]
    assert [group.shape[-1] for group in groups] == [shape.dimension for shape in shapes]
    torch.testing.assert_close(groups[0], pooling_module.pool_map(random_map(2, 3, 4, 4), pooling)[0])


def test_poolings_are_read_for_all_maps_or_one_by_one():
    assert pooling_module.parse_poolings("locations, mean+std", 2) == ("locations", "mean+std")
    with pytest.raises(ValueError, match="pooling is 'mean,max'; must be one of mean, "):
        pooling_module.parse_poolings("mean,max", 2)
    with pytest.raises(ValueError, match="pooling is 'mean,mean' with 3 maps; must be one name, or one per map"):
        pooling_module.parse_poolings("mean,mean", 3)


def test_a_single_pixel_has_only_a_mean():
    pooling_module.require_maps(("mean", "locations"), [(1, 1), (1, 1)])
    with pytest.raises(ValueError, match="pooling is 'patches' and a feature map is 2×1; needs maps of at least 2×2"):
        pooling_module.require_maps(("mean", "patches"), [(1, 1), (2, 1)])


class Constant(MapEncoder):
    """An encoder whose only map is the image, in bfloat16 as under autocast."""

    options_type = PixelsOptions

    def __init__(self):
        super().__init__(
            PixelsOptions(pooling="pyramid"),
            sample_shape=(3, 8, 8),
            network=torch.nn.Identity(),
            channels=[3],
            sizes=[(8, 8)],
        )

    def maps(self, values):
        return [values.bfloat16()]


def test_maps_in_bfloat16_are_pooled_in_float32():
    """Deviations far below the mean, as in trained networks. In bfloat16 the gradient has nothing in common with it."""
    values = 4 + 0.2 * torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    values = values.bfloat16().float()  # no rounding of the values themselves
    weights = torch.randn(2, 200, 3, generator=torch.Generator().manual_seed(1))

    def gradient(pool, x):
        x = x.clone().requires_grad_()
        (group,) = pool(x)
        (group * weights.to(group.dtype)[:, : group.shape[1]]).sum().backward()
        return x.grad.double().flatten()

    expected = gradient(lambda x: pooling_module.pool_map(x, "pyramid"), values.double())
    pixels = Pixels(PixelsOptions(pooling="pyramid"), sample_shape=(3, 8, 8))
    for pool in (Constant(), lambda x: pixels.features(x.bfloat16())):
        found = gradient(pool, values)
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))
    rounded = gradient(lambda x: pooling_module.pool_map(x.bfloat16(), "pyramid"), values)  # negative control
    assert torch.cosine_similarity(rounded, expected, dim=0) < 0.9
