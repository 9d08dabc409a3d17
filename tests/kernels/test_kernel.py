"""log k(x, y) against its formulas; lookup by name; custom kernels."""

import math

import pytest
import torch

from truedrift.kernels import gaussian, laplace, log_kernel

X = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
Y = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, -1.0]])
D = torch.tensor([[5.0, 0.0, math.sqrt(2)], [math.sqrt(13), math.sqrt(2), 2.0]])


def test_laplace_is_minus_distance_over_tau():
    torch.testing.assert_close(laplace(X, Y, 0.2), -D / 0.2)


def test_gaussian_is_minus_squared_distance_over_twice_tau_squared():
    torch.testing.assert_close(gaussian(X, Y, 0.2), -D.square() / 0.08)


@pytest.mark.parametrize(("name", "function"), [("laplace", laplace), ("gaussian", gaussian)])
def test_log_kernel_looks_up_names(name, function):
    assert log_kernel(name) is function


def test_custom_kernel_is_returned_unchanged():
    def cauchy(x, y, tau):
        return -torch.log1p((torch.cdist(x, y) / tau) ** 2)

    assert log_kernel(cauchy) is cauchy


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_tau_may_be_a_tensor_and_has_a_gradient(name):
    tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    x, y = X.double(), Y.double()
    torch.testing.assert_close(log_kernel(name)(x, y, tau), log_kernel(name)(x, y, 0.7))
    assert torch.autograd.gradcheck(lambda tau: log_kernel(name)(x, y, tau), tau)


def test_unknown_kernel_error_lists_the_known_kernels():
    with pytest.raises(ValueError, match=r"kernel is 'epanechnikov'; must be one of 'laplace', 'gaussian'; choose one"):
        log_kernel("epanechnikov")
