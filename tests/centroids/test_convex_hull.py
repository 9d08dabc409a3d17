"""γ ≥ 0 for ABC (`prop:convex`), ABC-2 and stratified ABC, so that the centroid stays in the convex hull."""

import math

import hypothesis.strategies as st
import torch
from hypothesis import given

from truedrift.centroids import ABC, ABC2, StratifiedABC, abc_weights
from truedrift.kernels import softmax

INF = math.inf
BRACKET = 0.4428
"""min over p of 1 − p + 3p² − 2p^{3/2} − max(0, 3p − 1)²/8, which bounds γ_i/α_i of ABC-2 from below."""

log_weights = st.lists(st.floats(-60, 0) | st.just(-INF), min_size=1, max_size=12).filter(lambda row: max(row) > -INF)


def row_of(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


@given(log_weights, st.sampled_from([torch.float32, torch.float64]))
def test_abc_stays_in_the_hull(values, dtype):
    log_w = row_of(values, dtype)
    assert float(ABC().reweight(log_w).min()) >= 0
    assert float(abc_weights(softmax(log_w)).min()) >= 0


@given(log_weights, st.sampled_from([torch.float32, torch.float64]))
def test_abc2_stays_in_the_hull(values, dtype):
    log_w = row_of(values, dtype)
    assert float(ABC2().reweight(log_w).min()) >= 0
    assert float(abc_weights(softmax(log_w), order=2).min()) >= 0


@given(log_weights)
def test_bracket_of_abc2_has_its_lower_bound(values):
    alpha = softmax(row_of(values))
    used = alpha > 1e-280
    assert float((abc_weights(alpha, order=2)[used] / alpha[used]).min()) >= BRACKET


def test_lower_bound_is_the_minimum_in_the_proof():
    p = torch.linspace(0, 1, 1_000_001, dtype=torch.float64)
    bound = 1 - p + 3 * p**2 - 2 * p**1.5 - (3 * p - 1).clamp_min(0) ** 2 / 8
    assert BRACKET <= float(bound.min()) < BRACKET + 1e-4


def test_bracket_of_abc2_comes_near_its_bound():
    """Negative control: with one weight of 0.67 among many small ones, the bracket is within 0.15 of its bound."""
    alpha = torch.cat((torch.tensor([0.67], dtype=torch.float64), torch.full((10_000,), 0.33e-4, dtype=torch.float64)))
    bracket = abc_weights(alpha, order=2) / alpha
    assert BRACKET <= float(bracket.min()) < BRACKET + 0.15


@given(st.data())
def test_stratified_abc_stays_in_the_hull(data):
    values = data.draw(log_weights)
    strata = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    log_w = row_of(values)
    gamma = StratifiedABC(torch.tensor(strata)).reweight(log_w)
    assert float(gamma.min()) >= 0
    assert abs(float(gamma.sum()) - 1) < 1e-14
