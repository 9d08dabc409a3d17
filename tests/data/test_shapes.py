"""Every point of a shape lies where the formula says, and all of the shape is covered."""

import math

import pytest
import torch
from sklearn.datasets import make_moons

from truedrift.data import EIGHT_GAUSSIANS
from truedrift.data.toys import MOON_NOISE, ROLL_NOISE, checkerboard, swiss_roll, two_moons

COUNT = 20_000
# Noise in the plane exceeds 6 σ once in 6·10⁷ points: a false alarm in 3 000 seeds.
REACH = 6


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_checkerboard_fills_its_eight_squares_evenly():
    y, part = checkerboard(COUNT, seeded())
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


def test_the_swiss_roll_winds_out():
    y, _ = swiss_roll(COUNT, seeded())
    t = torch.linspace(1.5 * math.pi, 4.5 * math.pi, 4000)
    curve = torch.stack((t * t.cos(), t * t.sin()), -1) / (4.5 * math.pi)
    distance, nearest = torch.cdist(y, curve).min(-1)
    assert distance.max() < REACH * ROLL_NOISE
    assert distance.max() > ROLL_NOISE  # there is noise
    # t is uniform, so its quarters hold equal shares, but for the noise along the curve.
    assert (torch.bincount(nearest // 1000) / COUNT - 0.25).abs().max() < 5 * (3 / 16 / COUNT) ** 0.5 + 0.01


def test_the_two_moons_are_those_of_scikit_learn():
    y, moon = two_moons(COUNT, seeded())
    theirs, which = make_moons(2000, noise=None, shuffle=False)
    theirs = torch.from_numpy(theirs).float() - torch.tensor([0.5, 0.25])
    for part in (0, 1):
        mine = y[moon == part]
        distance, nearest = torch.cdist(mine, theirs[which == part]).min(-1)
        assert distance.max() < REACH * MOON_NOISE
        assert distance.square().mean().sqrt() == pytest.approx(MOON_NOISE, rel=0.1)  # across the curve
        assert len(nearest.unique()) > 900  # of 1000: all of the arc is covered
        assert len(mine) / COUNT == pytest.approx(0.5, abs=5 * 0.5 / COUNT**0.5)


def test_the_eight_gaussians_stand_on_the_unit_circle():
    means = torch.tensor(EIGHT_GAUSSIANS.means)
    assert torch.allclose(means.norm(dim=-1), torch.ones(8))
    assert torch.atan2(means[1, 1], means[1, 0]).item() == pytest.approx(math.pi / 4)
    y, k = EIGHT_GAUSSIANS.sample_with_modes(COUNT, seeded())
    assert torch.equal(y, EIGHT_GAUSSIANS.sample(COUNT, seeded()))
    assert ((y - means[k]) / EIGHT_GAUSSIANS.std).square().mean().item() == pytest.approx(1, abs=5 / COUNT**0.5)


@pytest.mark.parametrize("shape", [checkerboard, swiss_roll, two_moons])
def test_a_shape_is_a_function_of_the_generator(shape):
    before = torch.get_rng_state()
    y, part = shape(9, seeded(3))
    assert torch.equal(y, shape(9, seeded(3))[0])
    assert not torch.equal(y, shape(9, seeded(4))[0])
    assert torch.equal(before, torch.get_rng_state())
    assert (y.dtype, y.shape, part.dtype, part.shape) == (torch.float32, (9, 2), torch.int64, (9,))
