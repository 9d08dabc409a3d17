"""The contract of every encoder: frozen, differentiable to the image, repeatable, identified by its fingerprint."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from oracles.lite_network import random_weights

from truedrift.encoders import (
    OPTIONS,
    ConvNetOptions,
    DINOv2Options,
    EfficientNetLite0Options,
    Encoder,
    GroupShape,
    OwnEncoderOptions,
    PixelsOptions,
    ResNetOptions,
    build,
    efficientnet_lite0,
    gradient_weights,
    stack_padded,
)
from truedrift.encoders.resnet import ResNet, initialize_weights, save_encoder
from truedrift.objective import drift_loss
from truedrift.options import from_dict
from truedrift.storage import write_tensors

EVERY = {
    "pixels": PixelsOptions(),
    "convnet": ConvNetOptions(channels=(4, 6)),
    "dinov2": DINOv2Options(random_weights=True, blocks=(1,), image_size=28),
    "efficientnet-lite0": EfficientNetLite0Options(taps=(1, 3)),
    "own": OwnEncoderOptions(run="own", taps=(1, 2)),  # in the working directory of the tests of this module
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(tmp_path_factory.mktemp("cache")))
        write_tensors(efficientnet_lite0.weights_file(), random_weights())
        patch.chdir(tmp_path_factory.mktemp("runs"))
        write_own_encoder(Path("own"))
        yield


def write_own_encoder(run):
    layout = ResNetOptions(width=8, blocks=(1, 1))
    network = ResNet(3, layout)
    initialize_weights(network, torch.Generator().manual_seed(0))
    save_encoder(run, network.state_dict(), layout, (3, 16, 16))


@pytest.fixture(scope="module")
def encoders(cache):
    return {name: build(options, sample_shape=(3, 16, 16)) for name, options in EVERY.items()}


@pytest.fixture(params=list(EVERY))
def encoder(request, encoders):
    return encoders[request.param]


def images(count=3, shape=(3, 16, 16)):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1)) * 2 - 1


def test_every_encoder_of_the_catalog_is_tested():
    assert list(EVERY) == list(OPTIONS)
    assert {name: type(options) for name, options in EVERY.items()} == OPTIONS


def test_group_shapes(encoder):
    groups = encoder(images())
    assert isinstance(groups, tuple)
    assert [tuple(group.shape) for group in groups] == [(3, D) for D in encoder.dimensions]


def test_the_gradient_reaches_every_pixel_and_no_weight(encoder):
    values = images().requires_grad_()
    sum(group.square().sum() for group in encoder(values)).backward()
    assert (values.grad != 0).float().mean() > 0.9  # dinov2 may ignore some border pixels
    assert not any(weight.requires_grad or weight.grad is not None for weight in encoder.parameters())


def test_the_gradient_agrees_with_a_difference_quotient(encoder):
    """Along a random direction, against a difference quotient in double precision."""
    double = build(encoder.options, sample_shape=(3, 16, 16)).double()
    values, direction = (
        images().double(),
        torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2)).double(),
    )

    def total(step):
        return sum(group.sin().sum() for group in double(values + step * direction))

    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(total(step), step)
    quotient = (total(1e-6) - total(-1e-6)) / 2e-6
    assert slope.item() == pytest.approx(quotient.item(), rel=1e-4)
    assert abs(slope.item()) > 1e-6


def test_stays_in_evaluation_mode(encoder):
    around = torch.nn.Sequential(encoder).train()
    assert around.training
    assert not any(module.training for module in encoder.modules())
    assert encoder.train() is encoder


def test_samples_are_independent(encoder):
    whole, alone = encoder(images()), encoder(images()[1:2])
    for group, single in zip(whole, alone, strict=True):
        torch.testing.assert_close(group[1:2], single, rtol=1e-4, atol=1e-5)


def test_the_same_options_give_the_same_encoder(encoder):
    again = build(encoder.options, sample_shape=(3, 16, 16))
    assert again.fingerprint() == encoder.fingerprint()
    for a, b in zip(again(images()), encoder(images()), strict=True):
        assert torch.equal(a, b)


def test_mirrored_images_have_other_features(encoder):
    assert any((a - b).abs().max() > 1e-5 for a, b in zip(encoder(images()), encoder(images().flip(-1)), strict=True))


def test_options_round_trip_through_json(encoder):
    written = json.loads(json.dumps(dataclasses.asdict(encoder.options)))
    assert from_dict(type(encoder.options), written) == encoder.options


def test_another_shape_is_refused_in_one_line(encoder):
    with pytest.raises(ValueError, match=r"values has shape \[2, 3, 8, 8\]; must have shape \[B, 3, 16, 16\]"):
        encoder(torch.zeros(2, 3, 8, 8))


def test_fingerprints_depend_on_every_weight(encoder):
    copy = build(encoder.options, sample_shape=(3, 16, 16))
    for weight in copy.parameters():
        before = copy.fingerprint()
        with torch.no_grad():
            weight[(-1,) * weight.ndim] += 1e-3
        assert copy.fingerprint() != before
        if weight.numel() > 10_000:  # stop after the first large weight
            break


def test_fingerprints_depend_on_options_and_shape():
    different = [
        build(options, sample_shape=shape).fingerprint()
        for options, shape in (
            (PixelsOptions(), (12,)),
            (PixelsOptions(), (3, 2, 2)),
            (PixelsOptions(), (3, 4, 1)),
            (ConvNetOptions(channels=(4,)), (3, 8, 8)),
            (ConvNetOptions(channels=(4,)), (3, 8, 9)),
            (ConvNetOptions(channels=(4,), seed=1), (3, 8, 8)),
            (ConvNetOptions(channels=(4,), pooling="mean+std"), (3, 8, 8)),
        )
    ]
    assert len(set(different)) == len(different)
    assert all(len(fingerprint) == 64 for fingerprint in different)


def test_values_of_another_dtype_are_converted_to_that_of_the_weights(encoders):
    (first, *_) = encoders["convnet"](images().double())
    assert first.dtype == torch.float32
    (pixels,) = encoders["pixels"](images().double())
    assert pixels.dtype == torch.float64


def test_points_are_their_own_features():
    points = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    encoder = build(PixelsOptions(), sample_shape=(2,))
    (features,) = encoder(points)
    assert torch.equal(features, points)
    assert encoder.dimensions == (2,)


def test_pixels_are_flattened_in_order():
    (features,) = build(PixelsOptions(), sample_shape=(3, 16, 16))(images())
    assert torch.equal(features[:, 256 + 16 + 2], images()[:, 1, 1, 2])


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="options is a str; must be one of PixelsOptions, ConvNetOptions, "):
        build("pixels", sample_shape=(2,))
    with pytest.raises(ValueError, match=r"sample_shape is \(0,\); must be \(D,\) for points"):
        build(PixelsOptions(), sample_shape=(0,))


class BatchNormEncoder(Encoder):
    def features(self, values):
        return (self.network(values),)


def test_an_encoder_freezes_its_network():
    encoder = BatchNormEncoder(
        PixelsOptions(), sample_shape=(2,), network=torch.nn.BatchNorm1d(2), groups=(GroupShape(2),)
    )
    assert not encoder.network.training
    assert not encoder.network.weight.requires_grad


def test_an_encoder_must_define_its_features():
    with pytest.raises(TypeError, match=r"abstract method '?features"):
        Encoder(PixelsOptions(), sample_shape=(2,), network=torch.nn.Identity(), groups=(GroupShape(2),))


# ---- Stacking of groups ----

DIMENSIONS = (3, 11, 6)
SETTINGS = {"temperatures": (0.2, 0.7), "estimator_pos": "abc", "normalization": "bidirectional"}


def groups(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    # Every group has another scale.
    return [torch.randn(rows, D, generator=generator, dtype=torch.float64) * (1 + D) + D for D in DIMENSIONS]


@pytest.mark.parametrize("path", ["general", "auto"])
@pytest.mark.parametrize("feature_scale", ["standardize-l2", "mean-distance", "none"])
def test_weighted_and_padded_groups_have_the_gradient_of_each_group(feature_scale, path):
    settings = {**SETTINGS, "feature_scale": feature_scale, "path": path}
    if feature_scale == "none":
        settings["temperatures"] = (5.0, 20.0)
    gen, pos = [g.requires_grad_() for g in groups(7, 1)], groups(9, 2)
    alone = [torch.autograd.grad(drift_loss(g, p, **settings).loss, [g])[0] for g, p in zip(gen, pos, strict=True)]
    loss = drift_loss(stack_padded(gen), stack_padded(pos), **settings).loss
    weights = torch.tensor(gradient_weights(DIMENSIONS, feature_scale), dtype=torch.float64)
    together = torch.autograd.grad((weights * loss).sum(), gen)
    for a, b in zip(alone, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * a.abs().max().item())


@pytest.mark.parametrize("feature_scale", ["standardize-l2", "none"])
def test_without_weights_narrow_groups_have_smaller_gradients(feature_scale):
    settings = {**SETTINGS, "feature_scale": feature_scale, "temperatures": (5.0, 20.0)}
    gen, pos = [g.requires_grad_() for g in groups(7, 1)], groups(9, 2)
    (alone,) = torch.autograd.grad(drift_loss(gen[0], pos[0], **settings).loss, [gen[0]])
    (padded, *_) = torch.autograd.grad(drift_loss(stack_padded(gen), stack_padded(pos), **settings).loss.sum(), gen)
    assert (padded.norm() / alone.norm()).item() == pytest.approx((3 / 11) ** 0.5, rel=1e-6)


def test_stack_padded_appends_zeros():
    stacked = stack_padded([torch.ones(2, 1), torch.full((2, 3), 2.0)])
    assert stacked.tolist() == [[[1, 0, 0], [1, 0, 0]], [[2, 2, 2], [2, 2, 2]]]


def test_gradient_weights_are_square_roots():
    assert gradient_weights((4, 16), "none") == [2.0, 1.0]
    assert gradient_weights((4, 16), "mean-distance") == [1.0, 1.0]


def test_wrong_arguments_of_stacking_are_refused():
    with pytest.raises(
        ValueError, match="feature_scale is 'l2'; must be one of 'standardize-l2', 'none', 'mean-distance'"
    ):
        gradient_weights((4,), "l2")
    with pytest.raises(ValueError, match="features is empty; must hold one or more groups"):
        stack_padded([])
