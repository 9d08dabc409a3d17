"""y = μ_k + σ ε, k uniform: moments of the samples against the formula, and what the mixtures refuse."""

import pytest
import torch

from truedrift.data import FOUR_MODES, THREE_CLUSTERS, GaussianMixture

LOPSIDED = GaussianMixture(means=((-3.0, 1.0), (2.0, 0.5), (4.0, -2.0)), std=0.2)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_mode_has_its_share_its_mean_and_its_deviation():
    count = 60_000
    y = LOPSIDED.sample(count, seeded(), dtype=torch.float64)
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
    y = LOPSIDED.sample(40_000, seeded(1))
    # The coordinates spread by about 3 and 1.3; five standard errors.
    assert (y.mean(0) - torch.tensor(LOPSIDED.mean)).abs().max() < 5 * 3.1 / 200


def test_a_sample_is_a_function_of_the_generator():
    assert torch.equal(LOPSIDED.sample(9, seeded(3)), LOPSIDED.sample(9, seeded(3)))
    assert not torch.equal(LOPSIDED.sample(9, seeded(3)), LOPSIDED.sample(9, seeded(4)))


def test_the_generator_advances_and_global_state_is_left_alone():
    before = torch.get_rng_state()
    generator = seeded()
    assert not torch.equal(LOPSIDED.sample(9, generator), LOPSIDED.sample(9, generator))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_shape_and_dtype(count, dtype):
    y = THREE_CLUSTERS.sample(count, seeded(), dtype=dtype)
    assert y.shape == (count, 2)
    assert y.dtype == dtype


def test_four_modes_are_those_of_the_appendix():
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
    with pytest.raises(ValueError, match=r"count is -1; must be ≥ 0; "):
        THREE_CLUSTERS.sample(-1, seeded())
