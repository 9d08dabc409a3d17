"""ConvGenerator: its formula, its sizes and its number of parameters."""

import itertools

import pytest
import torch
from oracles.generator_zoo import inputs, make_generator, perturb
from torch.nn import functional as F

from truedrift.generators import ConvGenerator, ConvOptions
from truedrift.generators.conv import map_sizes
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
    wanted = torch.tanh(model.last(F.silu(model.norm(large(h, w), w))))
    torch.testing.assert_close(found, wanted)
    assert large(h, w).shape == (6, 6, 8, 12)
    assert not torch.allclose(found, torch.tanh(model.last(F.silu(model.norm(large(h, w), w.flip(0))))))


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
    maps = (64 + 1) * 16 * 192 + (256 + 1) * 2 * widths[-1] + (9 * widths[-1] + 1) * shape[0]
    for inside, outside in [(192, 192), *itertools.pairwise(widths)]:
        modulation = (256 + 1) * 2 * (inside + outside)
        skip = 0 if inside == outside else (inside + 1) * outside
        maps += modulation + (9 * inside + 1) * outside + (9 * outside + 1) * outside + skip
    assert sum(parameter.numel() for parameter in model.parameters()) == condition + maps
    assert 1e6 < condition + maps < 3e6


def test_an_empty_batch_is_an_empty_batch():
    model = make_generator("conv")
    assert model(*inputs(model, 0)).shape == (0, 3, 8, 12)
