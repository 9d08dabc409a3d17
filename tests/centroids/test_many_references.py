"""float32 centroids of many references, in memory and over chunks, against a literal sum in float64.

The bound is a relative error of 4·2⁻²⁴·√(log n), for ‖T − exact‖/‖exact‖ of every query.
"""

import math
import sys

import numpy as np
import pytest
import torch

from truedrift.centroids import ESTIMATORS, centroid, streaming_centroid, weighted_mean
from truedrift.kernels.precision import to_widest

estimator = sys.modules["truedrift.centroids.estimator"]  # the name in the package is a function

ROUNDING = 2.0**-24
CASES = [  # n, D, τ: d/τ is up to 10³, and n_eff from 1 to 7·10⁵
    (10_000, 2, 0.1),
    (10_000, 64, 0.02),
    (10_000, 64, 0.1),
    (100_000, 2, 0.02),
    (100_000, 2, 1.0),
    (100_000, 16, 0.1),
    (1_000_000, 2, 0.1),
    (1_000_000, 2, 1.0),
]
each_case = pytest.mark.parametrize(("n", "D", "tau"), CASES)


def bound(n):
    return 4 * ROUNDING * math.sqrt(math.log(n))


def points(n, D):
    """Two queries and n references with another mean, so that T is not near the origin."""
    generator = torch.Generator().manual_seed(n + D)
    return torch.randn(2, D, generator=generator), torch.randn(n, D, generator=generator) + 0.5


def literal_log_weights(x, y, tau, kernel="laplace"):
    ratio = torch.stack([torch.linalg.vector_norm(query - y.double(), dim=-1) for query in x.double()]) / tau
    return -ratio if kernel == "laplace" else -(ratio**2) / 2


def literal_centroid(log_w, y, name):
    """Compute T with every weight, sum and product in float64."""
    w = (log_w - log_w.amax(-1, keepdim=True)).exp()
    a = w / w.sum(-1, keepdim=True)
    p_2, p_3 = (a**2).sum(-1, keepdim=True), (a**3).sum(-1, keepdim=True)
    gamma = {
        "standard": a,
        "abc": a * (1 - p_2 + a),
        "abc2": a * (1 - p_2 + 3 * p_2**2 - 2 * p_3 + (1 - 3 * p_2) * a + 2 * a**2),
    }[name]
    return torch.stack([(row.unsqueeze(-1) * y.double()).sum(0) for row in gamma])


def relative_error(T, exact):
    return float(((T.double() - exact).norm(dim=-1) / exact.norm(dim=-1)).max())


@each_case
def test_centroid_and_streaming_centroid_keep_their_digits(n, D, tau):
    x, y = points(n, D)
    log_w = literal_log_weights(x, y, tau)
    for name in ("standard", "abc", "abc2"):
        exact = literal_centroid(log_w, y, name)
        whole = centroid(x, y, tau=tau, estimator=name)
        streamed = streaming_centroid(x, y.split(300_000), tau=tau, estimator=name)
        assert whole.dtype is streamed.dtype is torch.float32
        assert relative_error(whole, exact) <= bound(n), name
        assert relative_error(streamed, exact) <= bound(n), name
        torch.testing.assert_close(streamed, whole, rtol=4 * ROUNDING, atol=4 * ROUNDING)  # equal to rounding


def test_gaussian_kernel_keeps_its_digits():
    x, y = points(100_000, 2)
    log_w = literal_log_weights(x, y, 0.1, "gaussian")
    for T in (
        centroid(x, y, tau=0.1, kernel="gaussian"),
        streaming_centroid(x, y.split(300_000), tau=0.1, kernel="gaussian"),
    ):
        assert relative_error(T, literal_centroid(log_w, y, "abc")) <= bound(100_000)


def test_float32_sums_and_float32_log_weights_exceed_the_bound():
    """Negative control: either rounding alone is too large, the sum at large n_eff and log w at large d/τ."""
    x, y = points(100_000, 2)
    log_w = literal_log_weights(x, y, 0.1)
    terms = log_w.softmax(-1).float().unsqueeze(-1) * y
    # One term after the other: the order of a product of matrices, and so its rounding, depends on the processor.
    total = torch.from_numpy(np.cumsum(terms.numpy(), axis=1, dtype=np.float32)[:, -1].copy())
    assert relative_error(total, literal_centroid(log_w, y, "standard")) > 10 * bound(100_000)
    x, y = points(10_000, 64)
    log_w = literal_log_weights(x, y, 0.1)
    rounded = log_w.float().double().softmax(-1) @ y.double()
    assert relative_error(rounded, literal_centroid(log_w, y, "standard")) > 1.5 * bound(10_000)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_sums_many_references_in_float64(name):
    """n = 10⁴ + 1, which br-snis reads as ten blocks; the reference has γ from exact log-weights, and a float64 sum."""
    x, y = points(10_001, 2)
    T = centroid(x, y, tau=0.1, estimator=name, generator=torch.Generator().manual_seed(3))
    gamma = ESTIMATORS[name].reweight(literal_log_weights(x, y, 0.1), torch.Generator().manual_seed(3))
    assert relative_error(T, gamma @ y.double()) <= bound(10_001)


# Blocks of a long sum


@pytest.fixture
def small_blocks(monkeypatch):
    """Sums of more than 4 references in blocks of 3."""
    for name, value in (("LONGEST_SUM", 4), ("BLOCK_ELEMENTS", 1), ("SMALLEST_BLOCK", 3)):
        monkeypatch.setattr(estimator, name, value)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_blocks_have_no_effect(n):
    generator = torch.Generator().manual_seed(n)
    gamma, y = (torch.randn(*shape, generator=generator).double() for shape in ((2, 1, 3, n), (5, n, 2)))
    expected = torch.einsum("abin,cnd->acid", gamma, y)
    torch.testing.assert_close(weighted_mean(gamma, y), expected, rtol=1e-13, atol=1e-14)
    assert weighted_mean(gamma.float(), y.half()).dtype is torch.float32
    by_vmap = torch.func.vmap(lambda weights: weighted_mean(weights, y[0]))(gamma[:, 0])
    torch.testing.assert_close(by_vmap, expected[:, 0], rtol=1e-13, atol=1e-14)
    assert torch.autograd.gradcheck(weighted_mean, (gamma.requires_grad_(), y.requires_grad_()))


def test_blocks_bound_the_memory_of_wide_copies(monkeypatch):
    sizes = []
    monkeypatch.setattr(estimator, "to_widest", lambda part: sizes.append(part.numel()) or to_widest(part))
    gamma, y = torch.full((2, 50_000), 1 / 50_000), torch.ones(50_000, 30)
    torch.testing.assert_close(weighted_mean(gamma, y), torch.ones(2, 30), rtol=2 * ROUNDING, atol=0)
    assert sum(sizes) == gamma.numel() + y.numel()
    assert max(sizes) <= estimator.BLOCK_ELEMENTS < y.numel() / 5


def test_autocast_has_no_effect_on_many_references():
    x, y = points(10_000, 16)
    plain = centroid(x, y, tau=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(centroid(x, y, tau=1.0), plain)
