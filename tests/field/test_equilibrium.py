"""E[V] = 0 at q = p for matched fields, by Monte Carlo: every form and normalization, with and without a self-mask.

Positives, negatives and other queries are independent draws from one skewed distribution; the query of interest is
fixed. The statistic of the mean field over the trials is χ² with two degrees of freedom if the expectation is 0. It
exceeds `LIMIT` with probability 10⁻⁴, so that a correct program fails one of the tests below on 19 seeds in 10,000.
"""

import math

import pytest
import torch

from truedrift.field import WEIGHTINGS, drift
from truedrift.field.spec import OVER_QUERIES

LIMIT = -2 * math.log(1e-4)  # P(χ²_2 > t) = e^{−t/2}
TRIALS = 20_000
CASES = [(*weighting, False) for weighting in WEIGHTINGS]
CASES += [(normalization, form, True) for normalization, form in WEIGHTINGS if normalization not in OVER_QUERIES]


def draw(*shape, seed):
    """Points of a skewed distribution in the plane."""
    normal = torch.randn(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (0.7 * normal).exp() * torch.tensor([1.0, 0.5], dtype=torch.float64)


def statistic(n, normalization, form, own, **options):
    """M V̄ᵀΣ̂⁻¹V̄ of the field at a fixed query over M trials, with n positives and four negatives."""
    x = draw(TRIALS, 5, seed=0)
    x[:, 0] = torch.tensor([0.6, 0.9], dtype=torch.float64)
    y_pos, y_neg = draw(TRIALS, n, seed=1), x if own else draw(TRIALS, 4, seed=2)
    tau = 0.4 if form == "product" else 0.2  # where the control is far from 0
    V = drift(x, y_pos, y_neg, tau=tau, normalization=normalization, form=form, self_mask=own, **options).V[:, 0]
    mean = V.mean(0)
    return TRIALS * float(mean @ torch.linalg.solve(V.mT.cov(), mean))


@pytest.mark.parametrize(("normalization", "form", "own"), CASES)
def test_matched_field_vanishes_where_both_sides_have_one_distribution(normalization, form, own):
    """Fourteen positives in a ring of windows of four. The control: without windows the field does not vanish."""
    assert statistic(14, normalization, form, own, matched=True) < LIMIT
    assert statistic(14, normalization, form, own, matched=False) > 2 * LIMIT


@pytest.mark.parametrize("estimator", ["standard", "abc"])
def test_matched_potential_vanishes_with_blocks_and_without_one_reference(estimator):
    """Windows of four among twelve and among five positives. At five the control would need more trials."""
    options = {"estimator_pos": estimator, "estimator_neg": estimator}
    for n in (12, 5):
        assert statistic(n, "row", "potential", False, matched=True, **options) < LIMIT
    assert statistic(12, "row", "potential", False, matched=False, **options) > 2 * LIMIT
