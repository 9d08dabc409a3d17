"""UNetGenerator: its formula, attention against a loop, its sizes and its number of parameters."""

import math

import pytest
import torch
from oracles.generator_zoo import inputs, make_generator, perturb
from torch.nn import functional as F

from truedrift.generators import UNetGenerator, UNetOptions
from truedrift.generators.layers import strength_features
from truedrift.generators.unet import MapAttention, attention_level


def test_agrees_with_the_formula():
    model = perturb(make_generator("unet")).double()  # 3×8×6, two levels of one block, attention on 4×3
    z, labels, strength, style_ids = inputs(model, 5)
    found = model(z, labels, strength, style_ids)
    features = strength_features(strength.double(), 8)
    w = F.silu(model.label.weight[labels] + model.condition(F.silu(model.hidden(features))))
    # Down.
    a = model.first(z.double())
    b = model.down[0](a, w)
    c = (b[:, :, ::2, ::2] + b[:, :, 1::2, ::2] + b[:, :, ::2, 1::2] + b[:, :, 1::2, 1::2]) / 4
    d = model.down[1](c, w)
    # Middle and up; every map on the way down is used once.
    h = model.middle[1](model.middle[0](d, w), w)
    h = model.up[0](torch.cat((h, d), 1), w)
    h = model.up[1](torch.cat((h, c), 1), w)
    h = F.interpolate(h, (8, 6), mode="bilinear")
    h = model.up[2](torch.cat((h, b), 1), w)
    h = model.up[3](torch.cat((h, a), 1), w)
    torch.testing.assert_close(found, torch.tanh(model.last(F.silu(model.norm(h, w)))))
    assert [layer.attention is not None for layer in (*model.down, *model.middle, *model.up)] == [
        *(False, True),
        *(True, False),
        *(True, True, False, False),
    ]


@pytest.mark.parametrize(("channels", "heads"), [(6, 1), (128, 2)])
def test_attention_against_a_loop(channels, heads):
    layer = MapAttention(channels, 4)
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=source) * channels**-0.5)
    layer.double()
    h, w = (torch.randn(shape, generator=source, dtype=torch.float64) for shape in ((2, channels, 2, 3), (2, 4)))
    normalized = layer.norm(h, w)
    wanted, size = torch.empty_like(h), channels // heads
    places = [(y, x) for y in range(2) for x in range(3)]
    for i in range(2):
        q, k, v = torch.stack([layer.qkv(normalized[i, :, y, x]) for y, x in places]).split(channels, 1)  # [6, C] each
        for at, (y, x) in enumerate(places):
            mixed = []
            for part in (slice(n * size, (n + 1) * size) for n in range(heads)):
                weights = torch.softmax(k[:, part] @ q[at, part] / math.sqrt(size), 0)
                mixed.append(weights @ v[:, part])
            wanted[i, :, y, x] = h[i, :, y, x] + layer.proj(torch.cat(mixed))
    torch.testing.assert_close(layer(h, w), wanted)


def test_parameter_count():
    model = UNetGenerator(UNetOptions(), sample_shape=(3, 32, 32), classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 33_430_403
    attentive = [layer.block.conv1.out_channels for layer in (*model.down, *model.up) if layer.attention is not None]
    assert attentive == [256] * 5  # two blocks down and three up at 16×16
    assert model.sample_shape == model.noise_shape == (3, 32, 32)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 48, 48), (3, 9, 17), (1, 1, 1)])
def test_any_size(shape):
    model = UNetGenerator(UNetOptions(width=4, multipliers=(1, 1, 2, 2), condition=4), sample_shape=shape, classes=2)
    x = model(*inputs(model, 2))
    assert x.shape == (2, *shape)
    assert x.is_contiguous()
    assert x.isfinite().all()


def test_level_of_the_attention():
    options = UNetOptions(attention=8, multipliers=(1, 1, 1))
    assert [attention_level((1, height, 8), options) for height in (8, 9, 16, 17, 32, 33)] == [0, 1, 1, 2, 2, None]
