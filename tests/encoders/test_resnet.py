"""The residual network and the encoder of a user's own run."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from truedrift.encoders import OwnEncoderOptions, ResNetOptions, build, hash_encoder
from truedrift.encoders.resnet import ResNet, initialize_weights, save_encoder

SHAPE = (3, 16, 12)
LAYOUT = ResNetOptions(width=8, blocks=(1, 2, 1))


def make_network(seed=0):
    network = ResNet(SHAPE[0], LAYOUT)
    initialize_weights(network, torch.Generator().manual_seed(seed))
    return network


def save_network(run, network, shape=SHAPE):
    run.mkdir(exist_ok=True)
    save_encoder(run, network.state_dict(), LAYOUT, shape)
    return str(run)


@pytest.fixture
def run(tmp_path):
    return save_network(tmp_path / "run", make_network())


def images(count=3, shape=SHAPE):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1)) * 2 - 1


def literal_norm(h, weight=None, bias=None):
    """Normalize each group of 8 channels of each image by a loop."""
    result = torch.empty_like(h)
    for b in range(len(h)):
        for start in range(0, h.shape[1], 8):
            group = h[b, start : start + 8]
            result[b, start : start + 8] = (group - group.mean()) / (group.var(correction=0) + 1e-5).sqrt()
    return result if weight is None else result * weight.view(-1, 1, 1) + bias.view(-1, 1, 1)


def literal_maps(weights, x):
    """The formulas of the module, written from the names of the weights."""

    def norm(h, name):
        return literal_norm(h, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def conv(h, name, stride=1):
        kernel = weights[f"{name}.weight"]
        return F.conv2d(h, kernel, stride=stride, padding=kernel.shape[-1] // 2)

    h = norm(conv(x, "stem"), "norm").relu()
    maps = [h]
    for stage, blocks in enumerate(LAYOUT.blocks):
        for block in range(blocks):
            name, stride = f"stages.{stage}.{block}", 2 if stage > 0 and block == 0 else 1
            inside = norm(conv(h, f"{name}.conv1", stride), f"{name}.norm1").relu()
            skip = conv(h, f"{name}.skip", stride) if f"{name}.skip.weight" in weights else h
            h = (skip + norm(conv(inside, f"{name}.conv2"), f"{name}.norm2")).relu()
        maps.append(literal_norm(h))
    return maps


def test_the_network_computes_its_formula():
    network = make_network().double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():  # scales and shifts that differ
            if "norm" in name:
                parameter.add_(torch.linspace(-0.3, 0.4, parameter.numel()))
        found = network(images().double())
    expected = literal_maps(network.state_dict(), images().double())
    assert [tuple(each.shape[1:]) for each in found] == [(8, 16, 12), (8, 16, 12), (16, 8, 6), (32, 4, 3)]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_initial_weights_keep_the_scale_of_features():
    """Weights are a function of the generator, and no stage starts near 0 or explodes."""
    first, same, other = make_network(), make_network(), make_network(1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters(), strict=True))
    assert not torch.equal(first.stem.weight, other.stem.weight)
    h = torch.randn(4, 8, 16, 16, generator=torch.Generator().manual_seed(3))
    assert 0.5 < first.stages[0](h).std().item() < 3


def test_the_encoder_returns_the_maps_of_its_run(run):
    encoder = build(OwnEncoderOptions(run=run, taps=(0, 2, 3), pooling="mean,locations,mean"), sample_shape=SHAPE)
    with torch.no_grad():
        maps = make_network()(images())
    expected = (maps[0].mean((-2, -1)), maps[2].flatten(2).transpose(1, 2), maps[3].mean((-2, -1)))
    for a, b in zip(encoder(images()), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_stages_after_the_last_tap_are_not_built(run):
    encoder = build(OwnEncoderOptions(run=run, taps=(1,)), sample_shape=SHAPE)
    assert len(encoder.network.stages) == 1
    assert encoder.dimensions == (8,)


@pytest.mark.parametrize(("stages", "taps"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (2, 3, 4)), (5, (2, 3, 4))])
def test_default_taps_exist(tmp_path, stages, taps):
    """The last three stages of up to four. With more stages they stay what they were in existing runs."""
    layout = ResNetOptions(width=8, blocks=(1,) * stages)
    network = ResNet(SHAPE[0], layout)
    initialize_weights(network, torch.Generator().manual_seed(0))
    save_encoder(tmp_path, network.state_dict(), layout, SHAPE)
    encoder = build(OwnEncoderOptions(run=str(tmp_path)), sample_shape=SHAPE)
    assert encoder.options.taps == taps
    with torch.no_grad():
        maps = network(images())
    for found, tap in zip(encoder(images()), taps, strict=True):
        torch.testing.assert_close(found, maps[tap].mean((-2, -1)))


def test_sizes_that_are_no_power_of_two_are_rounded_up(tmp_path):
    shape = (3, 7, 9)
    run = save_network(tmp_path / "odd", make_network(), shape)
    encoder = build(OwnEncoderOptions(run=run, taps=(1, 2, 3), pooling="locations"), sample_shape=shape)
    assert [group.problems for group in encoder.groups] == [63, 20, 6]
    for features, group in zip(encoder(images(2, shape)), encoder.groups, strict=True):
        assert features.shape == (2, group.problems, group.dimension)


def test_the_hash_names_the_weights(tmp_path, run):
    other = save_network(tmp_path / "other", make_network(1))
    assert hash_encoder(tmp_path / "run") != hash_encoder(tmp_path / "other")
    options = OwnEncoderOptions(run=run, taps=(1,), weights=hash_encoder(tmp_path / "run"))
    build(options, sample_shape=SHAPE)
    with pytest.raises(ValueError, match=r"has other weights than .*; must be the encoder that the run started with"):
        build(dataclasses.replace(options, run=other), sample_shape=SHAPE)


def test_runs_that_cannot_be_used_are_refused(tmp_path, run):
    with pytest.raises(ValueError, match=r"run is not set; must be the directory of a complete run .*; pass --encoder"):
        build(OwnEncoderOptions(), sample_shape=SHAPE)
    with pytest.raises(ValueError, match=r"run is '.*missing', which does not exist; .*; pass the path"):
        build(OwnEncoderOptions(run=str(tmp_path / "missing")), sample_shape=SHAPE)
    (tmp_path / "unfinished").mkdir()
    with pytest.raises(ValueError, match=r"encoder.safetensors is missing or damaged; .*; run the same train-encoder"):
        build(OwnEncoderOptions(run=str(tmp_path / "unfinished")), sample_shape=SHAPE)
    with pytest.raises(ValueError, match=r"was trained on images \(3, 16, 12\) and the samples are \(3, 16, 16\)"):
        build(OwnEncoderOptions(run=run, taps=(1,)), sample_shape=(3, 16, 16))
    with pytest.raises(ValueError, match=r"taps is \(1, 4\); must be from 0 to 3, the stages of this run"):
        build(OwnEncoderOptions(run=run, taps=(1, 4)), sample_shape=SHAPE)


def test_a_damaged_file_is_refused(tmp_path, run):
    path = tmp_path / "run" / "encoder.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"encoder.safetensors is missing or damaged"):
        build(OwnEncoderOptions(run=run, taps=(1,)), sample_shape=SHAPE)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="width is 12; must be a multiple of 8"):
        ResNetOptions(width=12)
    with pytest.raises(ValueError, match="blocks is "):
        ResNetOptions(blocks=())
    with pytest.raises(ValueError, match="taps is "):
        OwnEncoderOptions(taps=(3, 1))
    with pytest.raises(ValueError, match="pooling is 'max'"):
        OwnEncoderOptions(pooling="max")
