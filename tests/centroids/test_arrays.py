"""`abc_weights` of NumPy and JAX arrays equals that of tensors, and weights that are not normalized are refused."""

import numpy as np
import pytest
import torch

from truedrift import abc_weights
from truedrift.errors import UserError

RNG = np.random.default_rng(3)
LOGITS = 3 * RNG.normal(size=(4, 5, 17))
ALPHA = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)


def literal_gamma(alpha, order):
    """γ_i by loops over rows and references."""
    gamma = np.empty_like(alpha)
    for row in np.ndindex(alpha.shape[:-1]):
        p_2, p_3 = (sum(float(a) ** k for a in alpha[row]) for k in (2, 3))
        for i, a in enumerate(map(float, alpha[row])):
            more = 3 * p_2**2 - 2 * p_3 - 3 * p_2 * a + 2 * a * a if order == 2 else 0.0
            gamma[(*row, i)] = a * (1 - p_2 + a + more)
    return gamma


def require_equal(gamma, expected, alpha, eps):
    """Require equality to rounding: γ = α (1 − p_2 + …), whose bracket cancels, so that its error is a few eps of α."""
    error = np.abs(np.asarray(gamma, dtype=np.float64) - np.asarray(expected, dtype=np.float64))
    assert (error <= 8 * eps * np.asarray(alpha, dtype=np.float64) + np.finfo(np.float16).tiny * (eps > 1e-4)).all()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_numpy_array_gives_a_numpy_array(order, dtype):
    alpha = ALPHA.astype(dtype)
    gamma = abc_weights(alpha, order=order)
    assert isinstance(gamma, np.ndarray)
    assert gamma.dtype == dtype
    eps = float(np.finfo(dtype).eps)
    require_equal(gamma, literal_gamma(alpha.astype(np.float64), order), alpha, eps)
    require_equal(gamma, abc_weights(torch.from_numpy(alpha), order=order), alpha, eps)


@pytest.mark.parametrize("order", [1, 2])
def test_jax_array_gives_a_jax_array_also_inside_of_jit_and_grad(order):
    jax = pytest.importorskip("jax", reason="no jax: pip install jax")
    alpha = jax.numpy.asarray(ALPHA, dtype="float32")
    gamma = abc_weights(alpha, order=order)
    assert isinstance(gamma, jax.Array)
    expected, eps = abc_weights(torch.from_numpy(ALPHA).float(), order=order), float(np.finfo(np.float32).eps)
    require_equal(gamma, expected, alpha, eps)
    require_equal(jax.jit(lambda a: abc_weights(a, order=order))(alpha), expected, alpha, eps)
    # The gradient is that of torch.
    y = torch.from_numpy(RNG.normal(size=17)).float()
    logits = torch.from_numpy(LOGITS).float().requires_grad_()
    (abc_weights(logits.softmax(-1), order=order) @ y).sum().backward()
    slope = jax.grad(lambda z: (abc_weights(jax.nn.softmax(z), order=order) @ jax.numpy.asarray(y)).sum())
    np.testing.assert_allclose(slope(jax.numpy.asarray(LOGITS, dtype="float32")), logits.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_logits_are_refused(convert):
    with pytest.raises(UserError, match=r"alpha has sums .* and negative entries; .*sum 1; apply a softmax first"):
        abc_weights(convert(LOGITS))
    with pytest.raises(UserError, match=r"alpha has sums from .* to .*; must be normalized weights with sum 1; apply"):
        abc_weights(convert(np.exp(LOGITS)))
    nearly = ALPHA.copy()
    nearly[1, 2] *= 1.01  # one of twenty rows
    with pytest.raises(UserError, match=r"alpha has sums from 1 to 1\.01; "):
        abc_weights(convert(nearly))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_of_a_softmax_is_allowed(dtype):
    for n in (1, 8, 1000):
        alpha = torch.from_numpy(3 * RNG.normal(size=(50, n))).to(dtype).softmax(-1)
        alpha[0] = 0  # everything is masked
        assert abc_weights(alpha)[0].abs().sum() == 0
        assert abc_weights(alpha)[1:].float().sum(-1).sub(1).abs().max() < 0.05


def test_arrays_that_are_no_weights_are_refused():
    with pytest.raises(UserError, match=r"alpha is int64 \[2\]; must be a floating-point array"):
        abc_weights(np.array([1, 0]))
    with pytest.raises(UserError, match=r"alpha is float64 \[0\]; must be a floating-point array"):
        abc_weights(np.array([]))
    with pytest.raises(UserError, match=r"strata is given with an array; it needs tensors; "):
        abc_weights(ALPHA[0, 0], strata=np.zeros(17, dtype=int))
