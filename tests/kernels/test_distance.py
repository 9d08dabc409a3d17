"""d_ij = ‖x_i − y_j‖: both methods against a loop over pairs, in cases where digits could be lost."""

import math

import pytest
import torch

from truedrift.kernels import distance, pairwise_distance, squared_distance

ROUNDING = 2.0**-24  # of float32, relative
METHODS = ("exact", "matmul")


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def literal(x, y):
    """Compute ‖x_i − y_j‖ in float64, pair by pair."""
    return torch.tensor([[math.dist(a, b) for b in y.tolist()] for a in x.tolist()], dtype=torch.float64)


def relative_error(d, exact):
    return float(((d.double() - exact).abs() / exact).max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("D", [1, 3, 384])
@pytest.mark.parametrize("offset", [0, 1e3])
def test_float32_distances_have_float32_digits(method, D, offset):
    x, y = draw(7, D) + offset, draw(9, D, seed=1) + offset
    assert relative_error(pairwise_distance(x, y, method=method), literal(x, y)) <= 4 * ROUNDING


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gap", [1e-2, 1e-4])
def test_near_duplicates_keep_their_digits(method, gap):
    """References at a distance of `gap`, among distant ones: an expansion in float32 is wrong by 100 % at 1e-4."""
    x = draw(6, 64)
    y = torch.cat((x + gap * draw(6, 64, seed=1), draw(20, 64, seed=2)))
    exact = literal(x, y)
    assert relative_error(pairwise_distance(x, y, method=method), exact) <= 4 * ROUNDING
    plain = (x.square().sum(-1)[:, None] + y.square().sum(-1) - 2 * x @ y.T).clamp_min(0).sqrt()
    assert relative_error(plain, exact) > 1e3 * ROUNDING  # negative control: this case is hard


def test_float64_methods_agree_to_the_precision_of_the_expansion():
    """d² of the matmul method is accurate to a few roundings of the largest squared distance, at any offset."""
    x, y = (draw(8, 16, seed=s, dtype=torch.float64) + 1e4 for s in (0, 1))
    y[0] = x[0] + 1e-5
    exact, matmul = (squared_distance(x, y, method=method) for method in METHODS)
    largest = (y - y.mean(0)).square().sum(-1).max()
    assert float((exact - matmul).abs().max()) <= 16 * 2.0**-53 * float(largest)
    torch.testing.assert_close(exact.sqrt(), literal(x, y), rtol=1e-12, atol=0)


def test_auto_forms_differences_for_small_input_and_products_for_large():
    D = distance.EXACT_UP_TO_DIMENSION + 4
    rows = distance.EXACT_UP_TO_ELEMENTS // (4 * D)
    for n, path, other in ((4, "exact", "matmul"), (5, "matmul", "exact")):
        x, y = draw(rows, D, dtype=torch.float64), draw(n, D, seed=1, dtype=torch.float64)
        auto = pairwise_distance(x, y)
        assert torch.equal(auto, pairwise_distance(x, y, method=path))
        assert not torch.equal(auto, pairwise_distance(x, y, method=other))  # the two differ in their last digits
    x, y = draw(300, distance.EXACT_UP_TO_DIMENSION), draw(300, distance.EXACT_UP_TO_DIMENSION, seed=1)
    assert torch.equal(pairwise_distance(x, y), pairwise_distance(x, y, method="exact"))


@pytest.mark.parametrize("method", METHODS)
def test_same_changes_only_the_diagonal(method):
    x = draw(2, 6, 40)
    d = pairwise_distance(x, x, method=method, same=True)
    assert torch.equal(d.diagonal(dim1=-2, dim2=-1), torch.zeros(2, 6))
    off = ~torch.eye(6, dtype=torch.bool)
    assert torch.equal(d[:, off], pairwise_distance(x, x, method=method)[:, off])
    assert bool((d[:, off] > 1).all())


@pytest.mark.parametrize("method", METHODS)
def test_squared_distances_are_not_negative(method):
    x = draw(40, 64, dtype=torch.float64)
    assert float(squared_distance(x, x.clone(), method=method).min()) >= 0
    centered = x - x.mean(0)
    square = centered.square().sum(-1)
    assert float((square[:, None] + square - 2 * centered @ centered.T).min()) < 0  # negative control


@pytest.mark.parametrize("method", METHODS)
def test_leading_dimensions_broadcast(method):
    x, y = draw(3, 1, 4, 5), draw(2, 6, 5, seed=1)
    d = pairwise_distance(x, y, method=method)
    assert d.shape == (3, 2, 4, 6)
    for i in range(3):
        for j in range(2):
            assert relative_error(d[i, j], literal(x[i, 0], y[j])) <= 4 * ROUNDING


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_is_widened_before_subtraction(method, dtype):
    x, y = draw(4, 12, dtype=dtype), draw(5, 12, seed=1, dtype=dtype)
    d = pairwise_distance(x, y, method=method)
    assert d.dtype is torch.float32
    assert relative_error(d, literal(x, y)) <= 4 * ROUNDING


def test_result_has_the_wider_dtype():
    assert pairwise_distance(draw(2, 3), draw(2, 3, dtype=torch.float64)).dtype is torch.float64


@pytest.mark.parametrize("method", METHODS)
def test_gradient_at_zero_distance_is_zero(method):
    """x coincides with a reference: d = 0 there, and only the other reference contributes."""
    x = torch.tensor([[0.5, -1.0]], requires_grad=True)
    y = torch.tensor([[0.5, -1.0], [3.5, 3.0]], requires_grad=True)
    d = pairwise_distance(x, y, method=method)
    assert d.tolist() == [[0.0, 5.0]]
    d.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[-0.6, -0.8]]))
    torch.testing.assert_close(y.grad, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))


@pytest.mark.parametrize("method", METHODS)
def test_diagonal_of_same_has_no_gradient(method):
    x = draw(5, 30).requires_grad_()
    pairwise_distance(x, x, method=method, same=True).diagonal().sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("method", METHODS)
def test_gradient_away_from_zero(method):
    x, y = (draw(*shape, dtype=torch.float64).requires_grad_() for shape in ((3, 4), (2, 5, 4)))
    y = y.detach().add(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: pairwise_distance(x, y, method=method), (x, y))
    assert torch.autograd.gradcheck(lambda x, y: squared_distance(x, y, method=method), (x, y))


@pytest.mark.parametrize("method", METHODS)
def test_distances_whose_squares_overflow_in_float32(method):
    x, y = draw(5, 8) * 1e30, draw(6, 8, seed=1) * 1e30
    torch.testing.assert_close(pairwise_distance(x, y, method=method).double(), literal(x, y), rtol=1e-6, atol=0)


@pytest.mark.parametrize("same", [False, True])
def test_blocks_of_groups_equal_one_product(monkeypatch, same):
    """Groups of many references are taken block by block on a CPU; 6 groups in blocks of 2, and of 1."""
    generator = torch.Generator().manual_seed(0)
    y = 3 + torch.randn(2, 3, 11, 7, generator=generator)
    x = y if same else y[..., :4, :] + torch.randn(2, 3, 4, 7, generator=generator)
    expected = pairwise_distance(x, y, method="matmul", same=same)
    for elements in (2 * 11 * 7, 1):
        monkeypatch.setattr(distance, "BLOCK_ELEMENTS", elements)
        assert distance._fits_no_cache(x, y)
        assert not distance._fits_no_cache(x.clone().requires_grad_(), y)
        assert not distance._fits_no_cache(x[0], y)  # the groups of x are broadcast
        found = pairwise_distance(x, y, method="matmul", same=same)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(pairwise_distance(x[0], y, method="matmul"), torch.cdist(x[0].expand_as(x), y))


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_differences_that_are_not_stored_equal_those_that_are_differentiated(same, dtype):
    """Without a derivative, the exact method stores no differences on a CPU."""
    y = 3 + draw(2, 1, 7, 5, dtype=dtype)
    x = y if same else draw(3, 4, 5, seed=1, dtype=dtype)
    stored = pairwise_distance(x.clone().requires_grad_(), y, method="exact", same=same)
    found = pairwise_distance(x, y, method="exact", same=same)
    assert found.dtype is stored.dtype
    torch.testing.assert_close(found, stored.detach(), rtol=4 * torch.finfo(dtype).eps, atol=0)
