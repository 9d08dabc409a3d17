"""α, log-sum-exps and n_eff from log-weights, over ranges where exponentiating first gives 0 or ∞."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from oracles.centroids import alphas

from truedrift.kernels import apply_mask, effective_sample_size, logsumexp, normalize, power_sum, softmax, weights

INF = math.inf
LOWEST = {torch.float32: -3.4028234663852886e38, torch.float64: -1.7976931348623157e308}


def leave_one_out_logsumexp(log_w, dim):
    return weights.logsumexp_and_leave_one_out(log_w, dim)[1]


def literal_logsumexp(values):
    """log Σ e^v in float64, term by term relative to the largest; −∞ for an empty list."""
    values = [value for value in values if value > -INF]
    top = max(values, default=-INF)
    return top + math.log(math.fsum(math.exp(value - top) for value in values)) if values else -INF


def literal_leave_one_out(values):
    return [literal_logsumexp(values[:i] + values[i + 1 :]) for i in range(len(values))]


def draw_log_weights(size, scale, seed=0, dtype=torch.float64):
    return (-scale * torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(dtype)


ROWS = {
    "ordinary": [0.3, -1.2, 0.1, -0.4],
    "one dominates by 10⁴": [-1e4, 0.0, -1.0001e4, -1.0002e4],
    "two dominate": [700.0, 700.0, -5.0],
    "all equal": [-3.0, -3.0, -3.0],
    "far below zero": [-9e3, -9.001e3, -9.5e3],
    "some masked": [-INF, 0.5, -INF, -2.0, 0.4],
    "all but one masked": [-INF, -7.0, -INF],
    "everything masked": [-INF, -INF, -INF],
    "alone": [2.0],
    "alone and masked": [-INF],
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_leave_one_out_is_the_sum_of_the_others(row):
    result = leave_one_out_logsumexp(torch.tensor(row, dtype=torch.float64), -1)
    torch.testing.assert_close(
        result, torch.tensor(literal_leave_one_out(row), dtype=torch.float64), rtol=1e-14, atol=1e-15
    )


@given(st.lists(st.floats(-1e4, 1e4) | st.just(-INF), min_size=1, max_size=9))
def test_leave_one_out_of_random_rows(row):
    result = leave_one_out_logsumexp(torch.tensor(row, dtype=torch.float64), -1)
    torch.testing.assert_close(
        result, torch.tensor(literal_leave_one_out(row), dtype=torch.float64), rtol=4e-16, atol=4e-12
    )


def test_leave_one_out_along_another_dimension():
    log_w = draw_log_weights((2, 5, 3), 1e3)
    by_column = leave_one_out_logsumexp(log_w, -2)
    for group in range(2):
        for column in range(3):
            expected = torch.tensor(literal_leave_one_out(log_w[group, :, column].tolist()), dtype=torch.float64)
            torch.testing.assert_close(by_column[group, :, column], expected, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(by_column, leave_one_out_logsumexp(log_w.mT, -1).mT, rtol=0, atol=0)


def test_leave_one_out_in_float32_where_subtraction_loses_all_digits():
    """The largest term is the whole sum in float32, so log(S − w) by subtraction is −∞."""
    log_w = torch.tensor([0.0, -20.0, -21.0])
    result = leave_one_out_logsumexp(log_w, -1)
    assert float(result[0]) == pytest.approx(-20 + math.log1p(math.exp(-1)), rel=2.0**-23)
    naive = (log_w.exp().sum() - log_w.exp()).log()
    assert not math.isclose(float(naive[0]), float(result[0]), rel_tol=1e-3)


def test_leave_one_out_has_the_gradient_of_its_formula():
    rows = [[0.3, -1.2, 0.1], [0.0, -30.0, -31.0], [1.0, 1.0, -2.0]]
    log_w = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda log_w: leave_one_out_logsumexp(log_w, -1), log_w)
    with_masked = torch.tensor(
        [[-INF, 0.5, -INF, 0.4], [-INF, -INF, -INF, -INF]], dtype=torch.float64, requires_grad=True
    )
    result = leave_one_out_logsumexp(with_masked, -1)
    result[result > -INF].sum().backward()
    assert bool(torch.isfinite(with_masked.grad).all())


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logsumexp_matches_its_definition_and_is_finite_for_an_empty_row(row, dtype):
    log_w = torch.tensor(row, dtype=dtype)
    expected = max(literal_logsumexp(log_w.double().tolist()), LOWEST[dtype])
    assert logsumexp(log_w, -1).tolist() == pytest.approx([expected], rel=2 * torch.finfo(dtype).eps)
    assert normalize(log_w)[1].tolist() == pytest.approx([expected], rel=2 * torch.finfo(dtype).eps)
    assert weights.lowest_finite(log_w) == LOWEST[dtype]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_matches_its_definition_and_is_zero_for_an_empty_row(row, dtype):
    log_w = torch.tensor(row, dtype=dtype)
    used = alphas([value for value in log_w.double().tolist() if value > -INF])
    expected = [used.pop(0) if value > -INF else 0.0 for value in log_w.tolist()]
    assert softmax(log_w).tolist() == pytest.approx(expected, rel=8 * torch.finfo(dtype).eps, abs=1e-40)


@pytest.mark.parametrize("scale", [1, 1e2, 1e4])
def test_weights_sum_to_one_at_any_range(scale):
    alpha = softmax(draw_log_weights((50, 200), scale, dtype=torch.float32))
    torch.testing.assert_close(alpha.double().sum(-1), torch.ones(50, dtype=torch.float64), rtol=0, atol=3e-7)


def test_softmax_gradient_is_that_of_torch_and_zero_for_an_empty_row():
    log_w = draw_log_weights((3, 6), 5).requires_grad_()
    assert torch.autograd.gradcheck(softmax, log_w)
    empty = torch.full((1, 4), -INF, requires_grad=True)
    softmax(empty).sum().backward()
    assert torch.equal(empty.grad, torch.zeros(1, 4))


def test_apply_mask_overwrites_any_value_with_minus_infinity():
    log_w = torch.tensor([[1.0, math.nan, INF, -2.0]])
    result = apply_mask(log_w, torch.tensor([True, False, False, True]))
    assert result.tolist() == [[1.0, -INF, -INF, -2.0]]
    assert apply_mask(log_w, None) is log_w


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_apply_mask_widens_half_precision(dtype):
    log_w = torch.tensor([[-1.5, -70.25]], dtype=dtype)
    for mask in (None, torch.tensor([True, True])):
        assert apply_mask(log_w, mask).dtype is torch.float32
        assert torch.equal(apply_mask(log_w, mask), log_w.float())


def test_argmax_mask_selects_one_entry_among_equals():
    log_w = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0], [-INF, -INF, -INF]])
    assert weights.argmax_mask(log_w, -1).sum(-1).tolist() == [1, 1, 1]
    assert weights.argmax_mask(log_w, -1)[0].tolist() == [False, True, False]
    assert weights.argmax_mask(log_w.mT, -2).mT.tolist() == weights.argmax_mask(log_w, -1).tolist()


def test_power_sums_and_effective_sample_size():
    alpha = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert power_sum(alpha, 2).tolist() == [[0.375], [1.0], [0.0]]
    assert power_sum(alpha, 3).tolist() == [[0.15625], [1.0], [0.0]]
    assert effective_sample_size(alpha).tolist() == pytest.approx([1 / 0.375, 1.0, 0.0], rel=1e-15)


def test_gradient_of_the_effective_sample_size_of_an_empty_row_is_zero():
    alpha = torch.tensor([[0.5, 0.5], [0.0, 0.0]], requires_grad=True)
    effective_sample_size(alpha).sum().backward()
    assert alpha.grad.tolist() == [[-4.0, -4.0], [0.0, 0.0]]


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=9))
def test_effective_sample_size_lies_between_one_and_n(row):
    n_eff = float(effective_sample_size(softmax(torch.tensor(row, dtype=torch.float64))))
    assert 1 - 1e-12 <= n_eff <= len(row) * (1 + 1e-12)
