"""Toy distributions: moments and positions of the points against the formulas, and invalid mixtures."""

import math

import pytest
import torch
from sklearn.datasets import make_moons

from truedrift.data import (
    EIGHT_GAUSSIANS,
    FOUR_MODES,
    THREE_CLUSTERS,
    GaussianMixture,
    checkerboard,
    swiss_roll,
    toys,
    two_moons,
)

LOPSIDED = GaussianMixture(means=((-3.0, 1.0), (2.0, 0.5), (4.0, -2.0)), std=0.2)
COUNT = 20_000
# Noise in the plane exceeds 6 σ once in 6·10⁷ points: a false alarm in 3 000 seeds.
REACH = 6


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_share_mean_and_deviation_of_every_mode():
    count = 60_000
    y = LOPSIDED.sample(count, make_generator(), dtype=torch.float64)
    means = torch.tensor(LOPSIDED.means, dtype=torch.float64)
    nearest = torch.cdist(y, means).argmin(-1)  # modes are more than 10 σ apart
    for k, mean in enumerate(means):
        mine = y[nearest == k]
        # Five standard errors of each figure: a false alarm in 2·10⁶ runs.
        assert len(mine) / count == pytest.approx(1 / 3, abs=5 * (2 / 9 / count) ** 0.5)
        assert (mine.mean(0) - mean).abs().max() < 5 * LOPSIDED.std / len(mine) ** 0.5
        assert ((mine - mean).std(0) / LOPSIDED.std - 1).abs().max() < 5 / (2 * len(mine)) ** 0.5


def test_mean_is_the_mean_of_the_modes():
    assert LOPSIDED.mean == pytest.approx((1.0, -1 / 6))
    y = LOPSIDED.sample(40_000, make_generator(1))
    # The coordinates have standard deviations of about 3 and 1.3; five standard errors.
    assert (y.mean(0) - torch.tensor(LOPSIDED.mean)).abs().max() < 5 * 3.1 / 200


def test_a_sample_is_a_function_of_the_generator():
    assert torch.equal(LOPSIDED.sample(9, make_generator(3)), LOPSIDED.sample(9, make_generator(3)))
    assert not torch.equal(LOPSIDED.sample(9, make_generator(3)), LOPSIDED.sample(9, make_generator(4)))


def test_global_random_state_is_unchanged():
    before = torch.get_rng_state()
    generator = make_generator()
    assert not torch.equal(LOPSIDED.sample(9, generator), LOPSIDED.sample(9, generator))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_shape_and_dtype(count, dtype):
    y = THREE_CLUSTERS.sample(count, make_generator(), dtype=dtype)
    assert y.shape == (count, 2)
    assert y.dtype == dtype


def test_four_modes_equal_the_appendix():
    assert sorted(FOUR_MODES.means) == [(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)]
    assert FOUR_MODES.std == 0.1


@pytest.mark.parametrize("means", [(), ((),), ((0.0, 1.0), (2.0,))])
def test_means_of_different_dimensions_are_refused(means):
    with pytest.raises(ValueError, match=r"means is .*; must be one or more points of the same dimension; "):
        GaussianMixture(means=means, std=0.1)


@pytest.mark.parametrize(("mean", "std"), [(0.0, -0.1), (0.0, float("nan")), (float("inf"), 0.1)])
def test_invalid_means_and_deviations_are_refused(mean, std):
    with pytest.raises(ValueError, match=r"std is .*; must be finite numbers with std ≥ 0; "):
        GaussianMixture(means=((mean, 0.0),), std=std)


def test_a_negative_count_is_refused():
    with pytest.raises(ValueError, match=r"count is -1; must be an integer ≥ 0; "):
        THREE_CLUSTERS.sample(-1, make_generator())


def test_checkerboard_is_uniform_on_eight_squares():
    y, part = checkerboard(COUNT, make_generator())
    column, row = ((y + 1) * 2).floor().long().T
    assert y.min() >= -1
    assert y.max() < 1
    assert ((column + row) % 2 == 0).all()
    shares = torch.bincount(4 * column + row, minlength=16) / COUNT
    # Five standard errors: a false alarm in 10⁵ seeds.
    assert (shares[shares > 0] - 1 / 8).abs().max() < 5 * (7 / 64 / COUNT) ** 0.5
    assert int((shares > 0).sum()) == 8
    within = (y + 1) * 2 - torch.stack((column, row), -1)
    assert (within.mean(0) - 0.5).abs().max() < 5 * (1 / 12 / COUNT) ** 0.5
    assert part.unique().tolist() == [0]


def test_swiss_roll_follows_its_spiral():
    y, _ = swiss_roll(COUNT, make_generator())
    t = torch.linspace(1.5 * math.pi, 4.5 * math.pi, 4000)
    curve = torch.stack((t * t.cos(), t * t.sin()), -1) / (4.5 * math.pi)
    distance, nearest = torch.cdist(y, curve).min(-1)
    assert distance.max() < REACH * toys.ROLL_NOISE
    assert distance.max() > toys.ROLL_NOISE  # there is noise
    # t is uniform, so its quarters have equal shares up to the noise along the curve.
    assert (torch.bincount(nearest // 1000) / COUNT - 0.25).abs().max() < 5 * (3 / 16 / COUNT) ** 0.5 + 0.01


def test_two_moons_agree_with_scikit_learn():
    y, moon = two_moons(COUNT, make_generator())
    theirs, which = make_moons(2000, noise=None, shuffle=False)
    theirs = torch.from_numpy(theirs).float() - torch.tensor([0.5, 0.25])
    for part in (0, 1):
        mine = y[moon == part]
        distance, nearest = torch.cdist(mine, theirs[which == part]).min(-1)
        assert distance.max() < REACH * toys.MOON_NOISE
        assert distance.square().mean().sqrt() == pytest.approx(toys.MOON_NOISE, rel=0.1)  # across the curve
        assert len(nearest.unique()) > 900  # of 1000: all of the arc is covered
        assert len(mine) / COUNT == pytest.approx(0.5, abs=5 * 0.5 / COUNT**0.5)


def test_eight_gaussians_are_on_the_unit_circle():
    means = torch.tensor(EIGHT_GAUSSIANS.means)
    assert torch.allclose(means.norm(dim=-1), torch.ones(8))
    assert torch.atan2(means[1, 1], means[1, 0]).item() == pytest.approx(math.pi / 4)
    y, k = EIGHT_GAUSSIANS.sample_with_modes(COUNT, make_generator())
    assert torch.equal(y, EIGHT_GAUSSIANS.sample(COUNT, make_generator()))
    assert ((y - means[k]) / EIGHT_GAUSSIANS.std).square().mean().item() == pytest.approx(1, abs=5 / COUNT**0.5)


@pytest.mark.parametrize("shape", [checkerboard, swiss_roll, two_moons])
def test_a_shape_is_a_function_of_the_generator(shape):
    before = torch.get_rng_state()
    y, part = shape(9, make_generator(3))
    assert torch.equal(y, shape(9, make_generator(3))[0])
    assert not torch.equal(y, shape(9, make_generator(4))[0])
    assert torch.equal(before, torch.get_rng_state())
    assert (y.dtype, y.shape, part.dtype, part.shape) == (torch.float32, (9, 2), torch.int64, (9,))
