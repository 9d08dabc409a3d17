"""The random convolutional network against its formula, its weights against their distribution."""

import math

import pytest
import torch
from torch.nn import functional as F

from truedrift.encoders import ConvNetOptions, build
from truedrift.seeding import stream

RECORDED = [
    [0.28782370686531067, 0.46460941433906555],
    [0.09790059179067612, -0.08586683869361877],
    [-0.03924878314137459, 0.04186686500906944],
    [-0.09621562063694, -0.020833775401115417],
    [-0.03590690717101097, 0.06079905852675438],
    [0.05551956593990326, -0.01331547275185585],
]


def images(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(4)) * 2 - 1


def literal_maps(values, channels, seed):
    """Compute the maps stage by stage from the seeds."""
    number, maps = 0, []
    for stage, outputs in enumerate(channels):
        for stride in (1 if stage == 0 else 2, 1):
            inputs = values.shape[1]
            bound = math.sqrt(6 / (9 * inputs * 1.04))
            uniform = torch.rand(outputs, inputs, 3, 3, generator=stream(seed, "convnet", number))
            values = F.conv2d(values, uniform * (2 * bound) - bound, stride=stride, padding=1)
            values = torch.where(values > 0, values, 0.2 * values)
            number += 1
        maps.append(values)
    return maps


@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (2, 3, 33, 20), (1, 3, 64, 64)])
def test_features_agree_with_the_literal_network(shape):
    encoder = build(ConvNetOptions(seed=5), sample_shape=shape[1:])
    maps = literal_maps(images(*shape), (32, 64, 128), 5)
    for features, a in zip(encoder(images(*shape)), maps, strict=True):
        torch.testing.assert_close(features, a.mean((-2, -1)), rtol=1e-4, atol=1e-5)
    assert encoder.dimensions == (32, 64, 128)


def test_weights_agree_with_recorded_values():
    """The first and last weight of every convolution are the same on every machine."""
    encoder = build(ConvNetOptions(), sample_shape=(1, 8, 8))
    ends = [weight.flatten()[[0, -1]].tolist() for weight in encoder.parameters()]
    assert ends == RECORDED


def test_activations_neither_vanish_nor_grow():
    maps = build(ConvNetOptions(), sample_shape=(3, 32, 32)).maps(images(4, 3, 32, 32))
    scales = [a.square().mean().sqrt().item() for a in maps]
    assert all(0.2 < scale < 2 for scale in scales), scales


@pytest.mark.parametrize("pooling", ["mean+std", "patches", "pyramid"])
def test_small_images_have_every_pooling(pooling):
    encoder = build(ConvNetOptions(pooling=pooling), sample_shape=(1, 8, 8))
    assert [g.shape[-1] for g in encoder(images(2, 1, 8, 8))] == list(encoder.dimensions)
    with pytest.raises(ValueError, match="and a feature map is 1×1; needs maps of at least 2×2"):
        build(ConvNetOptions(pooling=pooling), sample_shape=(1, 4, 4))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"channels": ()}, r"channels is \(\); must be one or more integers"),
        ({"channels": (4, 0)}, r"channels\[1\] is 0; must be an integer ≥ 1"),
        ({"channels": (True,)}, r"channels\[0\] is True"),
        ({"seed": 1.5}, r"seed is 1\.5; must be an integer"),
        ({"pooling": "sum"}, "pooling is 'sum'"),
    ],
)
def test_wrong_options_name_the_field(wrong, message):
    with pytest.raises(ValueError, match=message):
        ConvNetOptions(**wrong)


def test_points_are_refused():
    with pytest.raises(ValueError, match=r'"convnet" needs images .*; use the encoder "pixels" for points'):
        build(ConvNetOptions(), sample_shape=(2,))
