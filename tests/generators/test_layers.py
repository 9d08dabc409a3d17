"""Layers of the convolutional generators against literal formulas; initial images are varied and have no dots."""

import itertools

import pytest
import torch
from oracles.generator_zoo import inputs
from torch import nn
from torch.nn import functional as F

from truedrift.generators import ConvOptions, UNetOptions, build, conv, layers, unet
from truedrift.generators.layers import ModulatedNorm, ResidualBlock, enlarge, image_convolution

CONVOLUTIONAL = pytest.mark.parametrize(
    "options",
    [ConvOptions(widths=(32, 32, 16, 16)), UNetOptions(width=16, multipliers=(1, 2, 2), blocks=1)],
    ids=lambda options: options.kind,
)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def initialized(layer):
    """Draw every parameter from N(0, 0.3²)."""
    source = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=source) * 0.3)
    return layer.double()


@pytest.mark.parametrize(("channels", "groups"), [(16, 8), (12, 4), (6, 2), (7, 1)])
def test_modulated_norm_against_a_loop(channels, groups):
    layer, h, w = initialized(ModulatedNorm(channels, 5)), 3 + 2 * numbers(3, channels, 4, 5), numbers(3, 5, seed=1)
    found = layer(h, w)
    for i in range(3):
        a, b = (layer.modulation.weight @ w[i] + layer.modulation.bias).split(channels)
        for c in range(channels):
            size = channels // groups
            group = h[i, c // size * size : (c // size + 1) * size]
            normalized = (h[i, c] - group.mean()) / (group.var(correction=0) + 1e-6).sqrt()
            torch.testing.assert_close(found[i, c], normalized * (1 + a[c]) + b[c])


def test_residual_block():
    block, h, w = initialized(ResidualBlock(6, 4, 5)), numbers(2, 6, 4, 5), numbers(2, 5, seed=1)
    inside = block.conv2(F.silu(block.norm2(block.conv1(F.silu(block.norm1(h, w))), w)))
    skip = torch.einsum("oc,bchw->bohw", block.skip.weight[:, :, 0, 0], h) + block.skip.bias.view(-1, 1, 1)
    torch.testing.assert_close(block(h, w), skip + inside)


def test_a_block_with_as_many_channels_has_no_skip_convolution():
    block, h = initialized(ResidualBlock(4, 4, 3)), numbers(2, 4, 4, 4)
    with torch.no_grad():
        block.conv2.weight.zero_()
        block.conv2.bias.zero_()
    assert torch.equal(block(h, numbers(2, 3)), h)


def test_the_last_layer_gives_values_of_the_stated_deviation():
    layer = image_convolution(64, 50)
    with torch.no_grad():
        layer.draw_parameters(torch.Generator().manual_seed(0))
    values = layer(F.silu(numbers(20, 64, 18, 18).float()))[
        :, :, 1:-1, 1:-1
    ]  # without the border, which has fewer inputs
    # silu is not centered, so that the mean over places varies per channel: 50 of them, about 5 % of the deviation.
    assert abs(values.square().mean().sqrt() / layers.OUTPUT_STD - 1) < 0.25


# ---- initial images ------------------------------------------------------------------------------------------------


def initial_images(options, *, shape=(3, 32, 32), seed=0, count=32):
    generator = build(options, sample_shape=shape, classes=4, seed=seed)
    with torch.no_grad():
        return generator(*inputs(generator, count))


@CONVOLUTIONAL
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 48, 48), (1, 20, 36)])
def test_initial_images_are_varied(options, shape):
    x = torch.stack([initial_images(options, shape=shape, seed=seed) for seed in range(4)])  # [seeds, B, C, H, W]
    assert 0.3 < x.std() < 0.6  # tanh of N(0, 0.6²) has 0.48; the last layer of a gray image has only 9 · 16 weights
    assert x.abs().amax() <= 1
    assert (x.abs() > 0.99).float().mean() < 0.01  # where tanh is flat
    assert x.flatten(3).std(3).mean() > 0.2  # over the places of an image
    assert x.std(1).mean() > 0.2  # over the images of a network
    for images in x.flatten(2):
        assert torch.pdist(images).min() > 0.2 * images.shape[1] ** 0.5  # no two images are alike


@CONVOLUTIONAL
def test_noise_alone_makes_images_different(options):
    generator = build(options, sample_shape=(3, 32, 32), classes=4, seed=0)
    z, labels, strength, style_ids = inputs(generator, 16)
    with torch.no_grad():
        x = generator(z, labels * 0 + 1, strength * 0 + 1, style_ids)
    assert x.std(0).mean() > 0.2


class NormalizedFeatures(nn.Module):
    """Strided convolutions with group normalization, as in a residual encoder."""

    def __init__(self, depth=5):
        super().__init__()
        source = torch.Generator().manual_seed(3)
        sizes = [3] + [16] * depth
        self.weights = [
            torch.randn(outside, inside, 3, 3, generator=source) * (2 / (9 * inside)) ** 0.5
            for inside, outside in itertools.pairwise(sizes)
        ]

    def forward(self, x):
        for weight in self.weights:
            x = F.relu(F.group_norm(F.conv2d(x, weight, stride=2 if x.shape[-1] > 4 else 1, padding=1), 8, eps=1e-6))
        return x.flatten(1)


def parameter_gradient(generator):
    """Return the norm of the gradient of a squared distance in feature space, as in the first step of a run."""
    x = generator(*inputs(generator, 8))
    features = NormalizedFeatures()
    targets = features(torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1)
    loss = (features(x) - targets).square().mean()
    gradients = torch.autograd.grad(loss, list(generator.parameters()), allow_unused=True)
    return torch.stack([gradient.norm() for gradient in gradients if gradient is not None]).norm()


@CONVOLUTIONAL
def test_the_first_gradient_is_moderate_and_a_constant_image_would_make_it_explode(options):
    generator = build(options, sample_shape=(3, 32, 32), classes=4, seed=0)
    assert 1e-3 < parameter_gradient(generator) < 10
    with torch.no_grad():
        generator.last.weight.mul_(1e-9)  # the control: a last layer near zero, as many networks have it
    assert not parameter_gradient(generator) < 1e4


# ---- dots ----------------------------------------------------------------------------------------------------------


def dot_ratio(x):
    """Return the power at the Nyquist frequency over that of the four next lower frequencies, along rows and columns.

    An upsampling that treats odd and even pixels differently multiplies the image by a pattern of period 2, which moves
    the power near frequency 0 to the Nyquist frequency.
    """
    lines = torch.cat((x, x.mT)) - x.mean((2, 3), keepdim=True).repeat(2, 1, 1, 1)
    power = torch.fft.rfft(lines).abs().square().mean((0, 1, 2))
    return (power[-1] / power[-5:-1].mean()).item()


def shuffle_pixels(h, size, mode="bilinear"):
    """Upsample by a factor of 2, with a random weight per channel for each of the four new pixels."""
    weights = torch.randn(h.shape[1], 1, 2, 1, 2, generator=torch.Generator().manual_seed(0))
    return (h[:, :, :, None, :, None] * weights).reshape(*h.shape[:2], *size)


@CONVOLUTIONAL
def test_images_have_no_dots_and_pixel_shuffles_would_make_them(options, monkeypatch):
    # Over 8 seeds: 0.84 to 1.15, and 2.3 to 5.4 for the control.
    assert all(dot_ratio(initial_images(options, seed=seed)) < 1.3 for seed in range(3))
    for module in (conv, unet):
        monkeypatch.setattr(module, "enlarge", shuffle_pixels)
    assert all(dot_ratio(initial_images(options, seed=seed)) > 1.6 for seed in range(3))


def test_the_ratio_of_white_noise_is_one_and_that_of_dots_is_large():
    noise = numbers(64, 3, 32, 32)
    assert abs(dot_ratio(noise) - 1) < 0.05  # 12 288 lines: a standard error of 0.01 for the numerator, which is real
    dots = torch.ones(32).double()
    dots[::2] = -1
    assert dot_ratio(noise + 0.5 * dots) > 2


def test_enlarge_is_bilinear():
    ramp = torch.arange(4.0).expand(1, 1, 4, 4)
    wanted = ((torch.arange(8) + 0.5) / 2 - 0.5).clamp(0, 3)
    torch.testing.assert_close(enlarge(ramp, (8, 8))[0, 0], wanted.expand(8, 8))
