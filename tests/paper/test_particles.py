"""Particles: the energy distance against a literal mean and draws, one step against `drift`, and where they rest."""

import pytest
import torch

from truedrift.data import FOUR_MODES, GaussianMixture
from truedrift.errors import UserError
from truedrift.field import drift
from truedrift.grids import StudyOptions
from truedrift.paper.particles import (
    START_STD,
    Particles,
    energy_distance,
    mean_distance,
    move_by_every_field,
    move_particles,
)
from truedrift.seeding import stream


@pytest.mark.parametrize("nu", [0.0, 0.05, 0.4, 30.0])
def test_mean_distance_to_a_gaussian(nu):
    """Within 4.5 standard errors of 10⁶ draws: exceeded for one seed in 150 000."""
    y = 0.3 * torch.randn(1_000_000, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    d = (y - torch.tensor((nu, 0.0), dtype=torch.float64)).norm(dim=-1)
    found = mean_distance(torch.tensor(nu, dtype=torch.float64), 0.3)
    assert abs(float(found - d.mean())) < 4.5 * float(d.std()) / 1000
    other = mean_distance(torch.tensor(nu, dtype=torch.float64), 0.32)
    assert nu > 1 or abs(float(other - d.mean())) > 4.5 * float(d.std()) / 1000  # the check detects another σ


def test_energy_distance_matches_the_literal_mean():
    """Points of an asymmetric mixture without spread: every expectation is a finite sum."""
    modes = ((0.0, 0.0), (1.0, 0.0), (0.0, 3.0))
    p = GaussianMixture(means=modes, std=1e-9)
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = torch.tensor(modes, dtype=torch.float64)
    between = sum(float((a - b).norm()) for a in x for b in y) / 21
    among_x = sum(float((a - b).norm()) for i, a in enumerate(x) for j, b in enumerate(x) if i != j) / 42
    among_y = sum(float((a - b).norm()) for a in y for b in y) / 9
    assert energy_distance(x, p) == pytest.approx(2 * between - among_x - among_y, abs=1e-7)


def test_energy_distance_is_unbiased_and_positive_elsewhere():
    """The mean of 200 sets of 50 draws from p is within 4 standard errors of 0: exceeded for one seed in 16 000."""
    generator = torch.Generator().manual_seed(3)
    values = torch.tensor([energy_distance(FOUR_MODES.sample(50, generator), FOUR_MODES) for _ in range(200)])
    error = float(values.std()) / 200**0.5
    assert abs(float(values.mean())) < 4 * error
    assert energy_distance(1.2 * FOUR_MODES.sample(2000, generator), FOUR_MODES) > 10 * error
    assert energy_distance(0.8 * FOUR_MODES.sample(2000, generator), FOUR_MODES) > 10 * error


@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize("estimator", ["standard", "abc", "abc2"])
def test_one_step_matches_its_definition(estimator, matched):
    settings = {"tau": 0.2, "n": 6, "g": 4, "estimator": estimator, "matched": matched}
    flow = move_particles(FOUR_MODES, 12, [(0.3, 1)], seed=5, every=1, **settings)
    generator = stream(5, "particles")
    x = START_STD * torch.randn(12, 2, generator=generator, dtype=torch.float64)
    order = torch.randperm(12, generator=generator)
    positives = FOUR_MODES.sample(18, generator, dtype=torch.float64)
    expected, sides = x.clone(), {"estimator_pos": estimator, "estimator_neg": estimator}
    for k in range(3):
        group = order[4 * k : 4 * k + 4]
        y = positives[6 * k : 6 * k + 6]
        V = drift(x[group], y, x[group], tau=0.2, self_mask=True, matched=matched, **sides).V
        expected[group] = x[group] + 0.3 * V
    torch.testing.assert_close(flow.x, expected)
    assert flow.energy == (energy_distance(flow.x, FOUR_MODES),)


def test_windows_must_divide_the_positives():
    with pytest.raises(UserError, match="n is 10 with 8 particles per group; must be a multiple of g − 1"):
        move_particles(FOUR_MODES, 16, [(0.1, 1)], tau=0.2, n=10, g=8, estimator="abc", matched=True, seed=0, every=1)


def test_flow_stops_below_an_energy_distance():
    settings = {"tau": 0.2, "n": 14, "g": 8, "estimator": "standard", "matched": True, "seed": 1, "every": 1}
    whole = move_particles(FOUR_MODES, 64, [(0.2, 12)], **settings)
    below = sorted(whole.energy)[6]
    stopped = move_particles(FOUR_MODES, 64, [(0.2, 12)], below=below, **settings)
    first = next(k for k, value in enumerate(whole.energy) if value < below)
    assert stopped.energy == whole.energy[: first + 1]


def test_every_field_is_moved_with_every_seed():
    """Several flows at a time give the digits of one after the other."""
    options = {"tau": 0.2, "n": 14, "g": 8, "every": 3}
    flows = move_by_every_field(FOUR_MODES, 64, [(0.2, 3)], (4, 9), StudyOptions(), **options)
    assert list(flows) == [(name, on) for on in (False, True) for name in ("standard", "abc", "abc2")]
    for (estimator, matched), some in flows.items():
        for seed, flow in zip((4, 9), some, strict=True):
            alone = move_particles(
                FOUR_MODES, 64, [(0.2, 3)], estimator=estimator, matched=matched, seed=seed, **options
            )
            assert torch.equal(flow.x, alone.x)
            assert flow.energy == alone.energy


def test_particles_are_stationary_if_the_last_third_does_not_change():
    def particles(*energy):
        return Particles(estimator="abc", matched=True, energy=energy, deviation_ratio=(1.0,), points=())

    falling = tuple(float(k) for k in range(12, 0, -1))
    assert particles(falling).final == (2.5,)  # 4, 3, 2, 1
    assert particles(falling).change == -2
    flat, other = (9.0,) * 8 + (1.0, 2.0, 2.0, 1.0), (9.0,) * 8 + (5.0, 4.0, 3.0, 4.0)
    assert particles(flat, other).mean == 2.75
    assert particles(flat, other).change == -0.5
    # From the seeds: changes of 0 and −1 have a variance of 0.5; halves of two snapshots give less.
    assert particles(flat, other).change_error == pytest.approx(0.5)
    assert particles(flat, other).is_stationary
    # From the snapshots: a fall of 1 per snapshot has a variance of 0.5 in each half of two.
    assert particles(falling).change_error == pytest.approx(0.5**0.5)
    assert not particles(falling).is_stationary
    assert not particles(falling, falling).is_stationary


def test_the_error_of_a_change_uses_means_of_consecutive_snapshots():
    """Halves of seven snapshots: the first is left out, and the means of the three pairs are 2, 3 and 7."""
    half = (50.0, 1.0, 3.0, 2.0, 4.0, 7.0, 7.0)
    one = Particles(estimator="abc", matched=True, energy=((9.0,) * 28 + half * 2,), deviation_ratio=(1.0,), points=())
    assert one.last_third == 14
    assert one.change == 0
    assert one.change_error == pytest.approx((2 * 7 / 3) ** 0.5)  # the variance of 2, 3 and 7 is 7


def test_a_small_fall_is_noticed_and_noise_is_not():
    """Independent noise around a constant is at rest in about 19 of 20 cases, a fall of 0.5 per snapshot in none."""
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(100, 3, 72, generator=generator, dtype=torch.float64)

    def count_at_rest(energy):
        rows = [tuple(tuple(seed) for seed in each) for each in energy.tolist()]
        made = [Particles(estimator="abc", matched=True, energy=e, deviation_ratio=(1.0,), points=()) for e in rows]
        return sum(each.is_stationary for each in made)

    assert count_at_rest(noise) >= 85
    assert count_at_rest(noise - 0.5 * torch.arange(72)) == 0


def test_matched_particles_come_nearer_to_the_data():
    """512 particles: the energy distance of independent draws has a standard deviation of 1.2e-3."""
    stages = [(0.3, 60), (0.1, 60), (0.03, 60)]
    at_rest = {
        matched: move_particles(
            FOUR_MODES, 512, stages, tau=0.2, n=63, g=8, estimator="abc", matched=matched, seed=0, every=60
        )
        for matched in (False, True)
    }
    assert [len(flow.energy) for flow in at_rest.values()] == [3, 3]
    assert at_rest[False].energy[-1] > 0.014
    assert at_rest[True].energy[-1] < 0.007
    assert at_rest[False].x.std(0).min() > at_rest[True].x.std(0).max()
