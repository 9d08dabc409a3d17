"""EfficientNet-Lite0: random weights against the literal layers, the published weights against a recorded output."""

from pathlib import Path

import pytest
import torch
from oracles.lite_network import LAYERS, MEAN, STD, literal_maps, random_weights
from safetensors.torch import load_file

from truedrift.encoders import EfficientNetLite0Options, build, efficientnet_lite0
from truedrift.storage import write_tensors

GOLDEN = Path(__file__).parents[1] / "golden" / "efficientnet_lite0.safetensors"
TAPS = (0, 2, 4, 10, 15)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    write_tensors(efficientnet_lite0.weights_file(), random_weights())
    return efficientnet_lite0.weights_file()


def images(channels=3):
    """Blocks of 4×4 pixels in [−1, 1]; uniform draws are the same on every machine."""
    small = torch.rand(2, channels, 8, 8, generator=torch.Generator().manual_seed(7))
    return small.repeat_interleave(4, -1).repeat_interleave(4, -2) * 2 - 1


def test_features_agree_with_the_literal_network(cache):
    encoder = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    maps = literal_maps(images(), random_weights(), 64)
    for features, tap in zip(encoder(images()), TAPS, strict=True):
        expected = maps[tap].mean((-2, -1)).float()
        assert expected.std() > 0.05  # not all zeros
        torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    assert encoder.dimensions == (16, 24, 40, 112, 320)


def test_quadrants_at_another_size_and_taps(cache):
    options = EfficientNetLite0Options(image_size=96, taps=(1, 5), pooling="patches")
    encoder = build(options, sample_shape=(3, 32, 32))
    groups = encoder(images())
    maps = literal_maps(images(), random_weights(), 96)
    torch.testing.assert_close(groups[1], maps[1][..., :12, 12:].mean((-2, -1)).float(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(groups[6], maps[5][..., 3:, :3].mean((-2, -1)).float(), rtol=1e-4, atol=1e-4)
    assert encoder.dimensions == (24,) * 4 + (80,) * 4
    assert len(encoder.network.blocks) == 6  # nothing after the last tap


def test_gray_images_are_repeated(cache):
    gray = images(channels=1)
    one = build(EfficientNetLite0Options(), sample_shape=(1, 32, 32))(gray)
    three = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))(gray.repeat(1, 3, 1, 1))
    torch.testing.assert_close(one, three)


def test_the_gradient_agrees_with_the_literal_network(cache):
    options = EfficientNetLite0Options(taps=(2,))
    ours = images().requires_grad_()
    (features,) = build(options, sample_shape=(3, 32, 32))(ours)
    coefficients = torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    (features * coefficients).sum().backward()
    literal = images().double().requires_grad_()
    (literal_maps(literal, random_weights(), 64)[2].mean((-2, -1)) * coefficients).sum().backward()
    torch.testing.assert_close(ours.grad, literal.grad.float(), rtol=1e-3, atol=1e-4 * literal.grad.abs().max().item())


def test_without_a_gradient_the_features_are_the_same(cache):
    encoder = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    with_gradient = encoder(images().requires_grad_())
    values = images()
    torch.testing.assert_close(encoder(values), with_gradient)
    assert torch.equal(values, images())  # the input is unchanged


def published_weights():
    if not efficientnet_lite0.weights_file().is_file():
        pytest.skip("no published weights in the cache: truedrift data fetch efficientnet-lite0")


def test_published_weights_give_the_recorded_features():
    published_weights()
    encoder = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    recorded = load_file(GOLDEN)
    for features, tap in zip(encoder(images()), TAPS, strict=True):
        torch.testing.assert_close(features, recorded[f"block_{tap}"], rtol=1e-4, atol=1e-4)


def test_published_weights_without_normalization_give_other_features():
    published_weights()
    encoder = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    normalized_before = (((images() + 1) / 2 - MEAN) / STD).clamp(-1, 1)
    difference = encoder(normalized_before)[-1] - load_file(GOLDEN)["block_15"]
    assert difference.abs().max() > 0.1


def test_the_block_table_agrees_with_the_published_shapes():
    assert list(zip(efficientnet_lite0.STRIDES, efficientnet_lite0.CHANNELS, strict=True)) == [
        (stride, outputs) for _, stride, _, outputs in LAYERS
    ]


def test_missing_weights_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"weights .* are missing or damaged; .*; run truedrift data fetch eff"
    ) as error:
        build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    assert "\n" not in str(error.value)


def test_damaged_weights_are_refused(cache):
    cache.write_bytes(cache.read_bytes()[:-1000] + bytes(1000))
    with pytest.raises(
        ValueError, match=r"weights .* are missing or damaged; must be in the cache; run truedrift data"
    ):
        build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 80}, "image_size is 80; must be a multiple of 32"),
        ({"image_size": 0}, "image_size is 0; must be an integer ≥ 32"),
        ({"taps": (2, 2)}, r"taps is \(2, 2\); must be strictly ascending integers ≥ 0 and ≤ 15"),
        ({"taps": (16,)}, r"taps is \(16,\); must be strictly ascending"),
        ({"taps": 3}, "taps is 3; must be one or more"),
        (
            {"pooling": "max"},
            "pooling is 'max'; must be one of mean, mean.std, patches, locations, pyramid, or one per map",
        ),
    ],
)
def test_wrong_options_name_the_field(options, message):
    with pytest.raises(ValueError, match=message):
        EfficientNetLite0Options(**options)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2,), 'sample_shape is .2,.; the encoder "efficientnet-lite0" needs images'),
        ((4, 32, 32), "takes 1 or 3 channels"),
        ((3, 32, 40), "takes square images"),
        ((3, 32), r"must be \(D,\) for points or \(C, H, W\)"),
    ],
)
def test_wrong_samples_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        build(EfficientNetLite0Options(), sample_shape=shape)


def test_a_map_of_one_pixel_has_no_quadrants(cache):
    with pytest.raises(ValueError, match="a feature map is 1×1"):
        build(EfficientNetLite0Options(image_size=32, pooling="patches"), sample_shape=(3, 32, 32))
