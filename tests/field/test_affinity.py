"""Affinities against the literal loop, entry by entry, and the properties of each normalization."""

import math

import pytest
import torch
from oracles.field import literal_log_affinity

from truedrift.field import JOINT_NORMALIZATIONS, log_affinity

INF = math.inf


def literal(log_k, normalization):
    log_w, log_A = literal_log_affinity(log_k.tolist(), normalization)
    return torch.tensor(log_w, dtype=log_k.dtype), torch.tensor(log_A, dtype=log_k.dtype)


def log_kernel_matrix(B, columns, largest_ratio, seed=0):
    """Return −d/τ of an asymmetric matrix: d/τ from 0 to `largest_ratio`, most of it near the upper end."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(B, columns, generator=generator, dtype=torch.float64)
    return -largest_ratio * uniform.sqrt()


def with_self_mask(log_k):
    return log_k.clone().fill_diagonal_(-INF)


MATRICES = {
    "four by seven": log_kernel_matrix(4, 7, 10),
    "seven by three": log_kernel_matrix(7, 3, 10, seed=1),
    "d/tau to 1e3": log_kernel_matrix(4, 6, 1e3, seed=2),
    "d/tau to 1e4": log_kernel_matrix(5, 6, 1e4, seed=3),
    "one query": log_kernel_matrix(1, 5, 50, seed=4),
    "one query, self-mask": with_self_mask(log_kernel_matrix(1, 5, 50, seed=5)),
    "two queries, self-mask": with_self_mask(log_kernel_matrix(2, 5, 1e4, seed=6)),
    "five queries, self-mask": with_self_mask(log_kernel_matrix(5, 8, 1e4, seed=7)),
    "all equal": torch.zeros(3, 4, dtype=torch.float64),
    "one entry holds a column": torch.tensor([[0.0, -1.0], [-1e4, -2.0], [-2e4, -3.0]], dtype=torch.float64),
    "a query with nothing": log_kernel_matrix(3, 4, 5).index_fill(0, torch.tensor([1]), -INF),
    "a column with nothing": log_kernel_matrix(3, 4, 5).index_fill(1, torch.tensor([2]), -INF),
}


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("log_k", MATRICES.values(), ids=MATRICES)
def test_matches_the_literal_loop(log_k, normalization):
    expected_w, expected_A = literal(log_k, normalization)
    actual = log_affinity(log_k, normalization)
    torch.testing.assert_close(actual.log_w, expected_w, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(actual.log_A, expected_A, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_float32_keeps_the_digits_of_its_logarithms(normalization):
    """The rounding error of a log-kernel of 10⁴ is 10⁴·2⁻²⁴; every later step may add as much."""
    log_k = with_self_mask(log_kernel_matrix(6, 11, 1e4)).float()
    expected, _ = literal(log_k.double(), normalization)
    error = (log_affinity(log_k, normalization).log_w.double() - expected)[log_k > -INF].abs()
    assert error.max() <= 4 * 1e4 * 2**-24


def test_the_three_normalizations_differ():
    """Negative control: the tests above distinguish the normalizations."""
    log_k = with_self_mask(log_kernel_matrix(5, 8, 10))
    row, both, loo = (log_affinity(log_k, each).log_w.exp() for each in JOINT_NORMALIZATIONS)
    assert (row - both).abs().max() > 0.05
    assert (both - loo).abs().max() > 0.05


def test_rows_of_the_row_normalization_sum_to_one_over_both_sides():
    log_k = with_self_mask(log_kernel_matrix(5, 8, 100))
    torch.testing.assert_close(log_affinity(log_k, "row").log_w.exp().sum(1), torch.ones(5, dtype=torch.float64))


def test_bidirectional_is_the_root_of_both_softmaxes():
    log_k = log_kernel_matrix(5, 8, 10)
    product = torch.softmax(log_k, 0) * torch.softmax(log_k, 1)
    torch.testing.assert_close(log_affinity(log_k, "bidirectional").log_A.exp(), product.sqrt())


def test_bidirectional_loo_keeps_the_ordinary_masses():
    log_k = with_self_mask(log_kernel_matrix(5, 8, 10))
    torch.testing.assert_close(
        log_affinity(log_k, "bidirectional-loo").log_A,
        log_affinity(log_k, "bidirectional").log_A,
        rtol=1e-14,
        atol=1e-14,
    )


def test_single_query_uses_the_row_weight():
    log_k = log_kernel_matrix(1, 6, 30)
    torch.testing.assert_close(
        log_affinity(log_k, "bidirectional-loo").log_w, log_affinity(log_k, "row").log_w, rtol=0, atol=1e-13
    )


def test_two_queries_with_self_mask_take_the_row_weight_entry_by_entry():
    """Without its own query, column 0 and 1 of two self-masked queries are empty; the other columns are not."""
    log_k = with_self_mask(log_kernel_matrix(2, 5, 30))
    loo, row = log_affinity(log_k, "bidirectional-loo").log_w, log_affinity(log_k, "row").log_w
    torch.testing.assert_close(loo[:, :2], row[:, :2], rtol=0, atol=1e-13)
    assert (loo[:, 2:] - row[:, 2:]).abs().min() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("log_k", MATRICES.values(), ids=MATRICES)
def test_affinity_is_minus_infinity_where_masked_and_finite_elsewhere(log_k, normalization, dtype):
    masked = log_k == -INF
    for log_A in log_affinity(log_k.to(dtype), normalization):
        assert torch.isfinite(log_A[~masked]).all()
        assert (log_A[masked] == -INF).all()


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_everything_masked_stays_minus_infinity(normalization):
    for log_A in log_affinity(torch.full((3, 4), -INF), normalization):
        assert (log_A == -INF).all()


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_batch_equals_loop(normalization):
    log_k = torch.stack([with_self_mask(log_kernel_matrix(4, 6, 20, seed)) for seed in range(6)]).view(2, 3, 4, 6)
    batched = log_affinity(log_k, normalization)
    for view, whole in zip(("log_w", "log_A"), batched, strict=True):
        for a in range(2):
            for b in range(3):
                torch.testing.assert_close(whole[a, b], getattr(log_affinity(log_k[a, b], normalization), view))


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_gradient_is_correct_and_finite(normalization):
    """gradcheck on the unmasked entries; the masked ones get gradient 0."""
    log_k = log_kernel_matrix(3, 5, 5)
    masked = torch.eye(3, 5, dtype=torch.bool)

    def affinity(values):
        log_w, log_A = log_affinity(values.masked_fill(masked, -INF), normalization)
        return log_w.masked_fill(masked, 0), log_A.masked_fill(masked, 0)

    values = log_k.clone().requires_grad_()
    assert torch.autograd.gradcheck(affinity, values)
    (gradient,) = torch.autograd.grad(sum(each.square().sum() for each in affinity(values)), values)
    assert torch.isfinite(gradient).all()
    assert (gradient[masked] == 0).all()
