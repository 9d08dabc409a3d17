"""The calibration of confidence: the published rates are those of the record, and other populations agree."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from truedrift.bias import CALIBRATION, confidence_level

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "results" / "confidence_calibration.jsonl"


def load_tool(name):
    """Import tools/NAME.py, which is a script and not part of the package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


calibration = load_tool("confidence_calibration")
AIM = 0.05
FALSE_ALARM = 1e-3


def compatible(high, wrong):
    """Whether `wrong` of `high` may come from a rate of 5 %: a rating of that rate fails with probability 0.1 %."""
    tail = sum(math.comb(high, k) * AIM**k * (1 - AIM) ** (high - k) for k in range(wrong, high + 1))
    return tail >= FALSE_ALARM


@pytest.fixture(scope="module")
def other_cases():
    return [calibration.compute_case(seed) for seed in range(10_000, 10_016)]


def test_the_stated_rates_are_those_of_the_record():
    cases = calibration.read(RECORD)
    assert [each.seed for each in cases] == [*calibration.CHOSEN_ON, *calibration.HELD_OUT]
    held_out = [each for each in cases if each.seed in calibration.HELD_OUT]
    assert calibration.measure(held_out) == CALIBRATION
    assert list(calibration.measure_more(held_out).values()) == [0.014815, 0.77333, 0.012931, 0.81786]
    assert CALIBRATION.false_high <= AIM
    assert min(CALIBRATION.coverage) > 0.9  # nominal 0.95


def test_a_seed_repeats_its_recorded_case():
    recorded = next(each for each in calibration.read(RECORD) if each.seed == 2)
    again = calibration.compute_case(2)
    assert (again.D, again.N, again.n) == (recorded.D, recorded.N, recorded.n)
    assert again.estimate == pytest.approx(recorded.estimate, rel=1e-3)
    assert again.truth == pytest.approx(recorded.truth, rel=1e-3)


def test_the_false_high_rate_holds_for_other_populations(other_cases):
    high = [each for each in other_cases if calibration.level_of(each) == "high"]
    assert len(high) >= 4
    assert compatible(len(high), sum(not calibration.is_usable(each) for each in high))


def test_a_rating_that_is_always_high_is_detected(other_cases):
    wrong = sum(not calibration.is_usable(each) for each in other_cases)
    assert not compatible(len(other_cases), wrong)


def test_the_rule_of_the_level():
    good = {"relative_noise": 0.1, "log_error": 0.1, "extrapolation": 0.0, "agreement": 1.0}
    assert confidence_level(**good) == "high"
    assert confidence_level(**good | {"agreement": 3.0}) == confidence_level(**good | {"agreement": 0.3}) == "medium"
    for bad in ({"relative_noise": 2.0}, {"log_error": 1.0}, {"extrapolation": 1.0}, {"extrapolation": -1.0}):
        assert confidence_level(**good | bad) == "low"


def test_rates_of_a_few_cases_computed_by_hand():
    (first,) = (each for each in calibration.read(RECORD) if each.seed == 0)
    right = replace(first, truth=(1.0, 1.0, 1.0), estimate=(1.0, 1.1, 1.0), expansion=1.0, agreement=1.0)
    wrong = replace(right, estimate=(1.0, 3.0, 1.0))
    hidden = replace(right, noise=(0.0, 9.0, 0.0))
    found = calibration.measure([right, right, wrong, hidden])
    assert found.false_high == pytest.approx(1 / 3, rel=1e-4)
    assert calibration.measure_more([right, right, wrong, hidden])["unusable cases that have high confidence"] == 1
    assert found.usable_called_high == pytest.approx(2 / 3, rel=1e-4)
    assert found.usable == 0.75


def test_the_cases_range_from_one_effective_reference_to_many():
    cases = calibration.read(RECORD)
    assert min(each.n_eff for each in cases) < 1.1
    assert max(each.n_eff for each in cases) > 100
    assert {each.D for each in cases} == set(calibration.DIMENSIONS)
    assert any(1.5 * each.n >= each.N for each in cases)
