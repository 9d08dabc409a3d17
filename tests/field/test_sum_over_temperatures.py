"""Σ_τ V_τ/√(mean V_τ² + 1e-8) against a loop, and the log-kernels of several temperatures."""

import math

import torch

from truedrift.field import log_kernels, mean_square, sum_normalized


def field(seed=0, T=3, B=4, D=5):
    scale = torch.tensor([1e-6, 1.0, 30.0], dtype=torch.float64)[:, None, None]
    return scale * torch.randn(T, B, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_each_field_is_normalized_by_its_rms_then_summed():
    V = field()
    expected = torch.zeros(4, 5, dtype=torch.float64)
    for tau in range(3):
        mean = sum(float(v) ** 2 for v in V[tau].flatten()) / 20
        expected += V[tau] / math.sqrt(mean + 1e-8)
    torch.testing.assert_close(sum_normalized(V), expected, rtol=1e-13, atol=1e-15)


def test_epsilon_is_inside_the_root():
    """A field of RMS 1e-4 gets the RMS 1/√2; with ε outside the root it would be 1."""
    V = torch.full((1, 2, 2), 1e-4, dtype=torch.float64)
    torch.testing.assert_close(sum_normalized(V), torch.full((2, 2), 0.5**0.5, dtype=torch.float64))


def test_a_zero_field_adds_nothing():
    V = field()
    V[1] = 0
    torch.testing.assert_close(sum_normalized(V), sum_normalized(V[[0, 2]]))


def test_groups_are_normalized_separately():
    V = torch.stack((field(0), 100 * field(1)))
    torch.testing.assert_close(sum_normalized(V), torch.stack((sum_normalized(V[0]), sum_normalized(V[1]))))
    assert mean_square(V).shape == (2, 3, 1, 1)


def test_log_kernels_are_minus_distance_over_temperature():
    d = torch.rand(2, 4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    log_k = log_kernels(d, (0.02, 0.5))
    assert log_k.shape == (2, 2, 4, 7)
    torch.testing.assert_close(log_k[:, 0], -d / 0.02)
    torch.testing.assert_close(log_k[:, 1], -d / 0.5)
