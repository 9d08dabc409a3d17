"""Kernels of the drift loss other than the Laplace kernel by name."""

import pytest
import torch

from truedrift.kernels import laplace
from truedrift.objective import drift_loss

SCALES = ("standardize-l2", "mean-distance", "none")


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(5)
    gen = torch.randn(2, 3, 5, 6, generator=generator, dtype=torch.float64)
    pos = torch.randn(2, 3, 7, 6, generator=generator, dtype=torch.float64) * 1.5 + 0.3
    neg = torch.randn(2, 3, 4, 6, generator=generator, dtype=torch.float64) - 0.2
    return gen, pos, neg


def loss_and_gradient(gen, *sides, **options):
    gen = gen.clone().requires_grad_()
    out = drift_loss(gen, *sides, **options)
    (gradient,) = torch.autograd.grad(out.loss.sum(), gen)
    return out, gradient


@pytest.mark.parametrize("feature_scale", SCALES)
@pytest.mark.parametrize("unconditional", [False, True])
def test_laplace_as_a_function_equals_laplace_by_name(batch, feature_scale, unconditional):
    gen, pos, neg = batch
    sides = (pos, neg) if unconditional else (pos,)
    options = {"feature_scale": feature_scale, "temperatures": (0.2, 0.7), "weight_neg": 1.5 if unconditional else None}
    named, its_gradient = loss_and_gradient(gen, *sides, **options)
    given, gradient = loss_and_gradient(gen, *sides, kernel=laplace, **options)
    torch.testing.assert_close(given.loss, named.loss, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, its_gradient, rtol=1e-7, atol=1e-12)
    for name, value in named.report.summary().items():
        torch.testing.assert_close(given.report.summary()[name], value, rtol=1e-7, atol=1e-12)


def test_gaussian_kernel_matches_a_literal_loop(batch):
    gen, pos, _ = batch
    tau = 0.6
    out, gradient = loss_and_gradient(
        gen, pos, kernel="gaussian", feature_scale="none", temperatures=(tau,), normalization="row", form="separate"
    )
    x, y = gen[1, 2], pos[1, 2]
    V = torch.zeros_like(x)
    for i in range(len(x)):
        for sign, references in ((1, y), (-1, torch.cat((x[:i], x[i + 1 :])))):
            alpha = torch.stack([torch.exp(-((x[i] - r) ** 2).sum() / (2 * tau**2)) for r in references])
            alpha = alpha / alpha.sum()
            gamma = alpha * (1 - (alpha**2).sum() + alpha)
            V[i] += sign * sum(g * r for g, r in zip(gamma, references, strict=True))
    V = V / ((V**2).mean() + 1e-8).sqrt()
    torch.testing.assert_close(gradient[1, 2], -2 * V / V.numel())
    torch.testing.assert_close(out.loss[1, 2], (V**2).mean())


def test_another_kernel_gives_another_field(batch):
    gen, pos, _ = batch
    _, of_laplace = loss_and_gradient(gen, pos, temperatures=(0.5,))
    _, of_gaussian = loss_and_gradient(gen, pos, temperatures=(0.5,), kernel="gaussian")
    assert (of_laplace - of_gaussian).abs().max() > 1e-3 * of_laplace.abs().max()


def test_gram_path_rejects_other_kernels(batch):
    gen, pos, _ = batch
    with pytest.raises(
        ValueError, match=r"path is 'gram' with .* kernel 'gaussian'; it requires .* 'laplace'; pass 'auto'"
    ):
        drift_loss(gen, pos, kernel="gaussian", path="gram")
    with pytest.raises(ValueError, match="kernel is 'cauchy'; must be one of"):
        drift_loss(gen, pos, kernel="cauchy")
