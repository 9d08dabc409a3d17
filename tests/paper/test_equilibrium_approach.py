"""Fields away from q = p, compared with their definitions, and the steps until particles arrive."""

from dataclasses import replace

import pytest
import torch

from truedrift.bias import exact_field
from truedrift.data import FOUR_MODES
from truedrift.grids import StudyOptions
from truedrift.paper.equilibrium_approach import (
    Arrival,
    approach_findings,
    approach_notes,
    find_first_step,
    study_approach,
)
from truedrift.paper.particles import move_particles

SEED, SHIFTED = 3, "data shifted by 0.1"


@pytest.fixture(scope="module")
def pool():
    return FOUR_MODES.sample(600, torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture(scope="module")
def approach(pool):
    return study_approach(pool, 128, 14, 2, StudyOptions(scale="smoke", seed=SEED))


@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize("estimator", ["standard", "abc2"])
def test_error_and_speed_match_their_definitions(approach, pool, estimator, matched):
    x = FOUR_MODES.sample(4, torch.Generator().manual_seed(SEED), dtype=torch.float64)
    move = torch.tensor((0.1, 0.0), dtype=torch.float64)
    found = approach.find_error(SHIFTED, estimator, matched)
    for k, (n, m) in enumerate(((8, 7), (64, 63), (126, 7))):
        field = exact_field(x + move, pool, pool + move, tau=0.2, n=n, m=m, estimator=estimator, matched=matched)
        off = along = length = 0.0
        for V, V_star in zip(field.V[:, 0].tolist(), field.population.tolist(), strict=True):
            off += sum((a - b) ** 2 for a, b in zip(V, V_star, strict=True))
            along += sum(a * b for a, b in zip(V, V_star, strict=True))
            length += sum(b * b for b in V_star)
        assert found.error[k] == pytest.approx((off / length) ** 0.5, rel=1e-3)
        assert found.speed[k] == pytest.approx(along / length, rel=1e-3)


def test_abc_is_nearer_to_the_population_field_with_many_references(approach):
    """The theorem: a bias of O(1/n²) instead of O(1/n) at every q. Far from the data, few of 63 references count."""
    for q in dict.fromkeys(each.q for each in approach.errors):
        for matched in (False, True):
            plain, abc, abc2 = (approach.find_error(q, name, matched) for name in ("standard", "abc", "abc2"))
            assert abc2.error[1] < abc.error[1] < (0.5 if q.startswith("data") else 1) * plain.error[1]


def test_arrivals_are_the_first_steps_below_the_thresholds(approach):
    assert approach.thresholds == (0.02, 0.01)
    for estimator, matched in (("standard", False), ("abc", True)):
        steps = approach.find_arrival(estimator, matched).steps
        assert len(steps) == 2
        for k, first in enumerate(steps):
            flow = move_particles(
                FOUR_MODES, 128, [(0.05, 20)], tau=0.2, n=14, g=8, estimator=estimator, matched=matched,
                seed=SEED + k, every=1, below=0.01,
            )  # fmt: skip
            expected = tuple(find_first_step(flow.energy, threshold) for threshold in (0.02, 0.01))
            assert first == expected


def test_first_step_is_counted_from_one():
    assert find_first_step((0.5, 0.2, 0.1, 0.2), 0.2) == 3
    assert find_first_step((0.1,), 0.2) == 1
    assert find_first_step((0.5, 0.2), 0.2) is None


def test_summary_shows_means_over_seeds_and_never(approach):
    def arrival(estimator, *steps):
        return Arrival(estimator=estimator, matched=True, steps=steps)

    arrivals = (arrival("standard", (10, 40), (11, 50)), arrival("abc", (8, 30), (9, 31)))
    here = replace(approach, arrivals=arrivals)
    assert approach_notes(here)[-2:] == ["matched standard: 10.5; 45.0", "matched ABC: 8.5; 30.5"]
    assert approach_findings(here)[-1] == (
        "matched particles reach an energy distance of 0.01 after 45 steps, with ABC after 30"
    )
    late = replace(approach, arrivals=(arrival("standard", (10, None), (11, 50)), arrivals[1]))
    assert approach_notes(late)[-2] == "matched standard: 10.5; never"
    assert len(approach_findings(late)) == 1
    first = approach.errors[0]
    assert f"{SHIFTED}, standard: {first.error[0]:.3f} ({first.speed[0]:.2f}); " in "\n".join(approach_notes(here))
