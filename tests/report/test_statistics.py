"""Statistics over seeds, compared with literal computations."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from truedrift.report import holm_paired, mean_and_deviation, paired, rolling_mean

NUMBERS = st.floats(-1e3, 1e3)


def test_deviation_is_the_largest_on_either_side():
    assert mean_and_deviation([1.0, 2.0, 6.0]) == (3.0, 3.0)
    assert mean_and_deviation([-6.0, -2.0, -1.0]) == (-3.0, 3.0)
    assert mean_and_deviation([4.0]) == (4.0, 0.0)


@given(values=st.lists(NUMBERS, min_size=1, max_size=20), window=st.sampled_from([1, 3, 5, 7]))
def test_rolling_mean_matches_a_literal_loop(values, window):
    half = (window - 1) // 2
    expected = []
    for k in range(len(values)):
        total, count = 0.0, 0
        for other, value in enumerate(values):
            if abs(other - k) <= half:
                total, count = total + value, count + 1
        expected.append(total / count)
    assert rolling_mean(values, window) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_rolling_mean_by_hand():
    assert rolling_mean([1.0, 2.0, 6.0, 12.0], 3) == [1.5, 3.0, 20 / 3, 9.0]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=9))
def test_paired_interval_matches_scipy(pairs):
    differences = [b - a for a, b in pairs]
    if max(differences) - min(differences) < 1e-3:
        return
    a, b = dict(enumerate(x for x, _ in pairs)), dict(enumerate(y for _, y in pairs))
    expected = scipy.stats.ttest_rel(list(b.values()), list(a.values())).confidence_interval(0.95)
    found = paired(a, b)
    assert found.pairs == len(pairs)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)
    assert found.significant == (expected.low > 0 or expected.high < 0)


def test_a_paired_interval_by_hand():
    found = paired({1: 5.0, 2: 7.0, 3: 6.0}, {3: 5.5, 2: 6.0, 1: 3.5})  # differences −1.5, −1, −0.5
    assert found.mean == pytest.approx(-1.0)
    half = 4.302652729911275 * 0.5 / math.sqrt(3)  # t(0.975; 2), standard deviation 0.5
    assert (found.low, found.high) == pytest.approx((-1 - half, -1 + half))
    assert not found.significant
    wider = paired({1: 5.0, 2: 7.0, 3: 6.0}, {1: 2.0, 2: 4.1, 3: 2.9})
    assert wider.significant
    assert wider.mean < 0


def test_seeds_of_one_side_are_not_paired():
    found = paired({1: 5.0, 2: 7.0, 9: 100.0}, {2: 6.0, 1: 4.5, 8: -100.0})
    assert (found.pairs, found.mean) == (2, pytest.approx(-0.75))


def test_one_pair_has_no_interval_and_no_pair_has_no_mean():
    one, none = paired({1: 5.0}, {1: 3.0, 2: 8.0}), paired({1: 5.0}, {2: 8.0})
    assert (one.pairs, one.mean, one.low, one.high, one.significant) == (1, -2.0, None, None, False)
    assert (none.pairs, none.mean, none.low, none.significant) == (0, None, None, False)


def literal_holm(pairs, level=0.05):
    """Which comparisons are significant by Holm's step-down procedure, from the p-values of scipy."""
    p_values = [scipy.stats.ttest_rel(list(other.values()), list(base.values())).pvalue for base, other in pairs]
    significant = [False] * len(pairs)
    for rank, k in enumerate(sorted(range(len(pairs)), key=p_values.__getitem__)):
        if p_values[k] > level / (len(pairs) - rank):
            break
        significant[k] = True
    return significant


def test_corrected_intervals_decide_like_holms_procedure():
    random = np.random.default_rng(0)
    decisions = set()
    for _ in range(200):
        shifts = random.choice([0.0, 1.5, 3.0], size=4)
        pairs = []
        for shift in shifts:
            base = dict(enumerate(random.normal(size=5)))
            pairs.append((base, {seed: value + shift + 0.8 * random.normal() for seed, value in base.items()}))
        found = [each.significant for each in holm_paired(pairs)]
        assert found == literal_holm(pairs)
        decisions.add(sum(found))
    assert decisions == {0, 1, 2, 3, 4}


def test_corrected_interval_of_the_smallest_p_value():
    one = {0: 1.0, 1: 2.0, 2: 4.0, 3: 3.0}, {0: 0.0, 1: 1.1, 2: 2.8, 3: 2.1}
    other = {0: 1.0, 1: 2.0, 2: 4.0, 3: 3.0}, {0: 2.0, 1: 1.0, 2: 4.5, 3: 2.5}
    first, _ = holm_paired([one, other])
    differences = [-1.0, -0.9, -1.2, -0.9]
    low, high = scipy.stats.ttest_1samp(differences, 0).confidence_interval(0.975)
    assert (first.low, first.high, first.comparisons) == (pytest.approx(low), pytest.approx(high), 2)
    assert "95 % interval, corrected for 2 comparisons, 0." in first.sentence("a", "b", ".2f")


def test_comparisons_without_an_interval_are_not_counted():
    lonely = {0: 1.0}, {0: 2.0}
    pair = {0: 1.0, 1: 2.0, 2: 4.0}, {0: 0.5, 1: 1.4, 2: 3.5}
    assert holm_paired([lonely, pair]) == [paired(*lonely), paired(*pair)]
