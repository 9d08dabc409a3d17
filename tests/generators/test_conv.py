"""ConvGenerator: its formula, its sizes and its number of parameters."""

import itertools

import pytest
import torch
from oracles.generator_zoo import inputs, make_generator, perturb
from torch.nn import functional as F

from truedrift.generators import ConvGenerator, ConvOptions
from truedrift.generators.conv import UpsamplingBlock, map_sizes
from truedrift.generators.layers import strength_features


def test_agrees_with_the_formula():
    model = perturb(make_generator("conv")).double()  # 3×8×12 from a map of 4×6, widths 8 and 6
    z, labels, strength, style_ids = inputs(model, 6)
    found = model(z, labels, strength, style_ids)
    z, features = z.double(), strength_features(strength.double(), 4)
    hidden = F.silu(model.hidden(torch.cat((z, model.label.weight[labels], features), 1)))
    w = F.silu(model.condition(hidden) + model.label_condition.weight[labels])
    small, large = model.blocks
    h = small(model.first(z).view(6, 8, 4, 6), w)
    torch.testing.assert_close(found, torch.tanh(model.last(large(h, w))))
    assert large(h, w).shape == (6, 6, 8, 12)
    assert not torch.allclose(found, torch.tanh(model.last(large(h, w.flip(0)))))


def modulated(norm, h, w):
    """silu(GroupNorm(h) (1 + a) + b), literally: groups of channels, mean 0 and variance 1."""
    B, C, *size = h.shape
    groups = h.view(B, norm.groups, -1)
    groups = (groups - groups.mean(-1, keepdim=True)) / (groups.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()
    a, b = (w @ norm.modulation.weight.T + norm.modulation.bias).view(B, 2, C, 1, 1).unbind(1)
    return F.silu(groups.view(B, C, *size) * (1 + a) + b)


@pytest.mark.parametrize(("size", "mode"), [(None, "nearest"), ((8, 10), "nearest"), ((7, 10), "bilinear")])
def test_block_enlarges_then_convolves_then_normalizes(size, mode):
    """The definition enlarges h before the 1×1 convolution of the skip; the block does it after, which costs less."""
    block = UpsamplingBlock(6, 4, 5, size=size, mode=mode).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    draw = torch.Generator().manual_seed(1)
    h, w = (torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((2, 6, 4, 5), (2, 5)))
    large = h if size is None else F.interpolate(h, size, mode=mode)
    inside = modulated(block.norm1, block.conv1(large), w)
    wanted = block.skip(large) + modulated(block.norm2, block.conv2(inside), w)
    torch.testing.assert_close(block(h, w), wanted)
    assert not torch.allclose(block(h, w.flip(0)), wanted)


def test_maps_are_repeated_and_the_last_one_is_interpolated():
    model = ConvGenerator(ConvOptions(), sample_shape=(3, 32, 32), classes=2)
    assert [(block.size, block.mode) for block in model.blocks[1:]] == [
        ((8, 8), "nearest"),
        ((16, 16), "nearest"),
        ((32, 32), "bilinear"),
    ]


def test_initial_weights_have_the_variance_of_torch_layers():
    """1/(3 · inputs). The sample variance of n normal numbers has a relative standard error of √(2/n), here ≤ 0.008."""
    model = ConvGenerator(ConvOptions(), sample_shape=(3, 32, 32), classes=2)
    for layer in (model.first, model.condition, model.blocks[0].conv1, model.blocks[1].conv2):
        inputs_per_output = layer.weight[0].numel()
        assert abs(layer.weight.var() * 3 * inputs_per_output - 1) < 0.04


@pytest.mark.parametrize(
    ("shape", "smallest", "maps"),
    [
        ((3, 16, 16), (4, 4), 3),
        ((1, 28, 28), (4, 4), 4),
        ((3, 32, 32), (4, 4), 4),
        ((3, 48, 48), (6, 6), 4),
        ((3, 64, 64), (4, 4), 5),
        ((3, 128, 128), (4, 4), 6),
        ((3, 32, 48), (4, 6), 4),
        ((1, 3, 5), (3, 5), 1),
        ((1, 7, 30), (4, 15), 2),
    ],
)
def test_sizes_of_maps(shape, smallest, maps):
    sizes = map_sizes(shape)
    assert (sizes[0], sizes[-1], len(sizes)) == (smallest, shape[1:], maps)
    assert all(
        small == -(-large // 2) for pair in itertools.pairwise(sizes) for small, large in zip(*pair, strict=True)
    )
    model = ConvGenerator(ConvOptions(widths=(8, 4), noise=3, condition=4, embedding=2), sample_shape=shape, classes=2)
    x = model(*inputs(model, 2))
    assert x.shape == (2, *shape)
    assert x.is_contiguous()
    widths = [block.conv1.out_channels for block in model.blocks]
    assert widths == [8, 4, 4, 4, 4, 4][:maps]  # maps beyond the list have as many channels as the last


@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((3, 16, 16), [192, 96, 64]),
        ((1, 28, 28), [192, 96, 64, 32]),
        ((3, 32, 32), [192, 96, 64, 32]),
        ((3, 128, 128), [192, 96, 64, 32, 32, 32]),
    ],
)
def test_parameter_counts(shape, widths):
    model = ConvGenerator(ConvOptions(), sample_shape=shape, classes=10)
    condition = 11 * 32 + (128 + 1) * 256 + (256 + 1) * 256 + 11 * 256
    maps = (64 + 1) * 16 * 192 + (9 * widths[-1] + 1) * shape[0]
    for inside, outside in [(192, 192), *itertools.pairwise(widths)]:
        modulation = (256 + 1) * 2 * 2 * outside
        skip = 0 if inside == outside else (inside + 1) * outside
        maps += modulation + (9 * inside + 1) * outside + (9 * outside + 1) * outside + skip
    assert sum(parameter.numel() for parameter in model.parameters()) == condition + maps
    assert 1e6 < condition + maps < 3e6


def test_an_empty_batch_is_an_empty_batch():
    model = make_generator("conv")
    assert model(*inputs(model, 0)).shape == (0, 3, 8, 12)
