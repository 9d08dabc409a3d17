"""The streaming centroid equals the centroid of all references for any chunks, order and masks."""

import itertools
import math

import pytest
import torch

from truedrift.centroids import centroid, streaming, streaming_centroid

ESTIMATORS = ("standard", "abc", "abc2")
every = pytest.mark.parametrize("estimator", ESTIMATORS)
EXACTLY = {"rtol": 1e-12, "atol": 1e-13}


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@every
@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
@pytest.mark.parametrize("sizes", [[20], [1, 12, 7], [1] * 20])
def test_uneven_chunks_equal_the_whole(estimator, kernel, sizes):
    x, y = draw(5, 3), draw(20, 3, seed=1)
    options = {"tau": 0.6, "estimator": estimator, "kernel": kernel}
    torch.testing.assert_close(streaming_centroid(x, y.split(sizes), **options), centroid(x, y, **options), **EXACTLY)


def test_the_estimators_differ():
    x, y = draw(5, 3), draw(20, 3, seed=1)
    results = [streaming_centroid(x, [y], tau=0.3, estimator=name) for name in ESTIMATORS]
    for a, b in itertools.combinations(results, 2):
        assert float((a - b).norm()) > 1e-2
    assert torch.equal(streaming_centroid(x, [y], tau=0.3), results[1])  # the default is abc


@every
@pytest.mark.parametrize("ratio", [1, 1e3])
def test_order_of_chunks_has_no_effect(estimator, ratio):
    """Also when the largest weight comes last and the sums before it are multiplied by e^{−1000}."""
    x, y = draw(3, 4), draw(12, 4, seed=1)
    far = y + 30
    tau = float(torch.cdist(x, far).max()) / ratio
    chunks = [far, y, y * 5]
    whole = centroid(x, torch.cat(chunks), tau=tau, estimator=estimator)
    for order in itertools.permutations(chunks):
        torch.testing.assert_close(streaming_centroid(x, order, tau=tau, estimator=estimator), whole, **EXACTLY)


@every
def test_masks_by_chunk_and_by_query(estimator):
    x, y = draw(2, 5, 3), draw(2, 20, 3, seed=1)
    mask = torch.rand(2, 5, 20, generator=torch.Generator().manual_seed(2)) < 0.5
    mask[..., 8:14] = False  # a whole chunk
    mask[0, 0] = False  # a query that uses nothing
    mask[1, 1, :14] = False  # and one whose first references come late
    mask[1, 1, 15] = True
    y[:, ~mask.any(-2).any(0)] = math.nan
    chunks = zip(y.split([8, 6, 6], -2), mask.split([8, 6, 6], -1), strict=True)
    T = streaming_centroid(x, chunks, tau=0.6, estimator=estimator)
    torch.testing.assert_close(T, centroid(x, y, tau=0.6, estimator=estimator, mask=mask), **EXACTLY)
    assert torch.equal(T[0, 0], x[0, 0])


@every
def test_some_chunks_with_a_mask_of_their_references_and_some_without(estimator):
    x, y, mask = draw(5, 3), draw(20, 3, seed=1), torch.arange(20) % 3 > 0
    mask[:8] = True
    chunks = [y[:8], (y[8:], mask[8:])]
    expected = centroid(x, y[mask], tau=0.6, estimator=estimator)
    torch.testing.assert_close(streaming_centroid(x, chunks, tau=0.6, estimator=estimator), expected, **EXACTLY)


@every
def test_masks_of_references_in_several_groups(estimator):
    x, y = draw(2, 5, 3), draw(2, 20, 3, seed=1)
    mask = torch.rand(2, 20, generator=torch.Generator().manual_seed(2)) < 0.5
    chunks = zip(y.split(8, -2), mask.split(8, -1), strict=True)
    T = streaming_centroid(x, chunks, tau=0.6, estimator=estimator)
    torch.testing.assert_close(T, centroid(x, y, tau=0.6, estimator=estimator, mask=mask), **EXACTLY)


@every
def test_leading_dimensions_broadcast(estimator):
    x, y = draw(2, 1, 5, 3), draw(4, 20, 3, seed=1)
    T = streaming_centroid(x, y.split(7, -2), tau=0.6, estimator=estimator)
    assert T.shape == (2, 4, 5, 3)
    torch.testing.assert_close(T, centroid(x, y, tau=0.6, estimator=estimator), **EXACTLY)


@every
def test_chunks_may_come_from_a_generator_and_are_read_once(estimator):
    x, y, read = draw(5, 3), draw(20, 3, seed=1), []

    def reader():
        for i, chunk in enumerate(y.split(6)):
            read.append(i)
            yield chunk

    T = streaming_centroid(x, reader(), tau=0.6, estimator=estimator)
    assert read == [0, 1, 2, 3]
    torch.testing.assert_close(T, centroid(x, y, tau=0.6, estimator=estimator), **EXACTLY)


@every
@pytest.mark.parametrize("elements", [1, 5, 17])
def test_blocks_within_a_chunk_have_no_effect(estimator, elements, monkeypatch):
    x, y = draw(5, 3), draw(20, 3, seed=1)
    mask = torch.rand(5, 20, generator=torch.Generator().manual_seed(2)) < 0.7
    whole = centroid(x, y, tau=0.6, estimator=estimator, mask=mask)
    monkeypatch.setattr(streaming, "BLOCK_ELEMENTS", elements)
    torch.testing.assert_close(streaming_centroid(x, [(y, mask)], tau=0.6, estimator=estimator), whole, **EXACTLY)


@every
@pytest.mark.parametrize("ratio", [10, 1e3])
def test_float32_sums_keep_float32_digits(estimator, ratio):
    """10⁴ references in 50 chunks, d/τ up to `ratio`: the error of T is a few roundings of the largest |y|."""
    x, y = draw(8, 6, dtype=torch.float32), draw(10_000, 6, seed=1, dtype=torch.float32)
    tau = float(torch.cdist(x, y).max()) / ratio
    T = streaming_centroid(x, y.split(200), tau=tau, estimator=estimator)
    assert T.dtype is torch.float32
    exact = centroid(x.double(), y.double(), tau=tau, estimator=estimator)
    assert float((T - exact).abs().max()) <= 2.0**-24 * ratio * float(y.abs().max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_and_returned_in_its_dtype(dtype):
    x, y = draw(5, 3, dtype=dtype), draw(20, 3, seed=1, dtype=dtype)
    T = streaming_centroid(x, y.split(6), tau=0.6)
    assert T.dtype is dtype
    torch.testing.assert_close(T, streaming_centroid(x.double(), y.double().split(6), tau=0.6).to(dtype))


def test_no_gradient_is_recorded():
    x, y = draw(5, 3).requires_grad_(), draw(20, 3, seed=1).requires_grad_()
    assert not streaming_centroid(x, [y], tau=0.6).requires_grad


@every
def test_all_chunks_masked_give_the_query(estimator):
    x = draw(5, 3)
    chunks = [(torch.full((4, 3), math.nan, dtype=torch.float64), torch.zeros(4, dtype=torch.bool))] * 2
    assert torch.equal(streaming_centroid(x, chunks, tau=0.6, estimator=estimator), x)


def test_autocast_has_no_effect():
    x, y = draw(5, 64, dtype=torch.float32), draw(2000, 64, seed=1, dtype=torch.float32)
    plain = streaming_centroid(x, y.split(700), tau=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(streaming_centroid(x, y.split(700), tau=1.0), plain)
