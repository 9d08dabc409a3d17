"""log k(x, y) against its formulas; lookup by name; custom kernels."""

import math

import pytest
import torch

from truedrift.kernels import gaussian, laplace, log_kernel
from truedrift.kernels.kernel import lowest_log_kernel, wide_log_kernel

X = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
Y = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, -1.0]])
D = torch.tensor([[5.0, 0.0, math.sqrt(2)], [math.sqrt(13), math.sqrt(2), 2.0]])


def test_laplace_is_minus_distance_over_tau():
    torch.testing.assert_close(laplace(X, Y, 0.2), -D / 0.2)


def test_gaussian_is_minus_squared_distance_over_twice_tau_squared():
    torch.testing.assert_close(gaussian(X, Y, 0.2), -D.square() / 0.08)


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e19, 7e37])
@pytest.mark.parametrize("of_tau", [float, torch.tensor], ids=["float", "tensor"])
def test_kernels_depend_on_ratios_only(scale, of_tau):
    """Also where the squares of d and τ are not in the range of float32; τ is at least 10⁻³⁰."""
    x, y, tau = X * scale, Y * scale, float(torch.tensor(max(scale / 4, 1e-30)))
    ratio = (x.double().unsqueeze(1) - y.double()).norm(dim=-1) / tau
    for function, expected in ((laplace, -ratio), (gaussian, -(ratio**2) / 2)):
        log_k = function(x, y, of_tau(tau))
        assert log_k.dtype is torch.float32
        torch.testing.assert_close(log_k.double(), expected, rtol=4 * 2.0**-24, atol=1e-40)


@pytest.mark.parametrize("kernel", [laplace, gaussian])
def test_references_beyond_the_range_of_float32_are_not_masked(kernel):
    x, y = torch.zeros(1, 2), torch.tensor([[3e38, -3e38], [1e10, 0.0], [0.0, 0.0]])
    log_k = kernel(x, y, 1e-30)
    lowest = lowest_log_kernel(torch.float32)
    assert log_k.tolist() == [[lowest, lowest, 0.0]]
    assert math.isfinite(100 * lowest)
    wide = wide_log_kernel(kernel, x, y, 1e-30)
    assert wide.dtype is torch.float64
    assert -math.inf < float(wide[0, 0]) < float(wide[0, 1]) < lowest  # the order is known


def test_functions_of_the_user_get_x_and_y_as_they_are():
    seen = []

    def constant(x, y, tau):
        seen.append((x.dtype, y.dtype, tau))
        return torch.zeros(len(x), len(y), dtype=x.dtype)

    assert wide_log_kernel(constant, X.half(), Y.half(), 2.0).dtype is torch.float64
    assert seen == [(torch.float16, torch.float16, 2.0)]


def test_second_derivative_of_the_gaussian_at_distance_zero():
    """log k = −(x − y)²/(2τ²), so that it is −1/τ² everywhere."""
    y = torch.tensor([[0.5]], dtype=torch.float64)
    second = torch.func.hessian(lambda x: gaussian(x.view(1, 1), y, 0.25).sum())(y[0])
    torch.testing.assert_close(second, torch.tensor([[-16.0]], dtype=torch.float64))


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
