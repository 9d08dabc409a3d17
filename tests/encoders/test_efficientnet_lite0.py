"""EfficientNet-Lite0: random weights against the literal layers, the published weights against a recorded output."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from truedrift.encoders import build
from truedrift.encoders.efficientnet_lite0 import EfficientNetLite0Options, weights_file
from truedrift.encoders.lite_network import BLOCKS

GOLDEN = Path(__file__).parents[1] / "golden" / "efficientnet_lite0.safetensors"
TAPS = (0, 2, 4, 10, 15)
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
# kernel, stride, widened, out of each block, written out once more
LAYERS = [
    (3, 1, 32, 16),
    *[(3, 2, 96, 24), (3, 1, 144, 24)],
    *[(5, 2, 144, 40), (5, 1, 240, 40)],
    *[(3, 2, 240, 80), (3, 1, 480, 80), (3, 1, 480, 80)],
    *[(5, 1, 480, 112), (5, 1, 672, 112), (5, 1, 672, 112)],
    *[(5, 2, 672, 192), (5, 1, 1152, 192), (5, 1, 1152, 192), (5, 1, 1152, 192)],
    (3, 1, 1152, 320),
]


def random_weights():
    """Every convolution and norm of the network, asymmetric, on a scale that keeps activations of order 1."""
    generator = torch.Generator().manual_seed(3)
    weights = {}

    def layer(convolution, norm, *shape):
        fan_in = shape[1] * shape[2] * shape[3]
        weights[f"{convolution}.weight"] = torch.randn(*shape, generator=generator) * (2 / fan_in) ** 0.5
        for name, low, high in (("weight", 0.6, 1.4), ("bias", -0.3, 0.8), ("running_mean", -0.2, 0.2)):
            weights[f"{norm}.{name}"] = low + (high - low) * torch.rand(shape[0], generator=generator)
        weights[f"{norm}.running_var"] = 0.5 + torch.rand(shape[0], generator=generator)
        weights[f"{norm}.num_batches_tracked"] = torch.tensor(9)

    layer("_conv_stem", "_bn0", 32, 3, 3, 3)
    inputs = 32
    for i, (kernel, _, wide, outputs) in enumerate(LAYERS):
        if i > 0:
            layer(f"_blocks.{i}._expand_conv", f"_blocks.{i}._bn0", wide, inputs, 1, 1)
        layer(f"_blocks.{i}._depthwise_conv", f"_blocks.{i}._bn1", wide, 1, kernel, kernel)
        layer(f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2", outputs, wide, 1, 1)
        inputs = outputs
    return weights


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    weights_file().parent.mkdir()
    save_file(random_weights(), weights_file())
    return weights_file()


def images(channels=3):
    """Blocks of 4×4 pixels in [−1, 1]; uniform draws are the same on every machine."""
    small = torch.rand(2, channels, 8, 8, generator=torch.Generator().manual_seed(7))
    return small.repeat_interleave(4, -1).repeat_interleave(4, -2) * 2 - 1


def literal_maps(values, weights, side):
    """Resize, then normalize; TensorFlow's "same" padding; batch norm by its formula; all in double precision."""
    w = {name: tensor.double() for name, tensor in weights.items()}

    def same(values, kernel, stride, groups=1):
        k, side = kernel.shape[-1], values.shape[-1]
        total = max((-(-side // stride) - 1) * stride + k - side, 0)
        padding = (total // 2, total - total // 2) * 2
        return F.conv2d(F.pad(values, padding), kernel, stride=stride, groups=groups)

    def norm(values, name):
        return F.batch_norm(
            values,
            w[f"{name}.running_mean"],
            w[f"{name}.running_var"],
            w[f"{name}.weight"],
            w[f"{name}.bias"],
            eps=1e-3,
        )

    values = F.interpolate((values.double() + 1) / 2, (side, side), mode="bilinear", align_corners=False)
    h = norm(same((values - MEAN.double()) / STD.double(), w["_conv_stem.weight"], 2), "_bn0").clamp(0, 6)
    maps = []
    for i, (_, stride, wide, _) in enumerate(LAYERS):
        before, block = h, f"_blocks.{i}."
        if i > 0:
            h = norm(F.conv2d(h, w[f"{block}_expand_conv.weight"]), f"{block}_bn0").clamp(0, 6)
        h = norm(same(h, w[f"{block}_depthwise_conv.weight"], stride, wide), f"{block}_bn1").clamp(0, 6)
        h = norm(F.conv2d(h, w[f"{block}_project_conv.weight"]), f"{block}_bn2")
        h = h + before if h.shape == before.shape else h
        maps.append(h)
    return maps


def test_features_are_the_literal_network(cache):
    encoder = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    maps = literal_maps(images(), random_weights(), 64)
    for features, tap in zip(encoder(images()), TAPS, strict=True):
        expected = maps[tap].mean((-2, -1)).float()
        assert expected.std() > 0.05  # the comparison below is not one of zeros
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


def test_the_gradient_is_that_of_the_literal_network(cache):
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
    assert torch.equal(values, images())  # work in place stays inside


def published_weights():
    if not weights_file().is_file():
        pytest.skip("no published weights in the cache: truedrift data fetch efficientnet-lite0")


def test_published_weights_give_the_recorded_features():
    published_weights()
    encoder = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    recorded = load_file(GOLDEN)
    for features, tap in zip(encoder(images()), TAPS, strict=True):
        torch.testing.assert_close(features, recorded[f"block_{tap}"], rtol=1e-4, atol=1e-4)


def test_published_weights_without_normalization_would_not():
    published_weights()
    encoder = build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    normalized_before = (((images() + 1) / 2 - MEAN) / STD).clamp(-1, 1)
    difference = encoder(normalized_before)[-1] - load_file(GOLDEN)["block_15"]
    assert difference.abs().max() > 0.1


def test_the_table_is_that_of_the_published_shapes():
    assert [(b.kernel, b.stride, b.inputs * b.expansion, b.outputs) for b in BLOCKS] == LAYERS


def test_missing_weights_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=r"no EfficientNet-Lite0 weights at .*; run truedrift data fetch eff") as error:
        build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    assert "\n" not in str(error.value)


def test_damaged_and_foreign_weights_are_told(cache):
    foreign = random_weights()
    foreign["_blocks.3._bn1.bias"] = torch.zeros(7)
    save_file(foreign, cache)
    with pytest.raises(
        ValueError, match=r"_blocks.3._bn1.bias of .* has shape \[7\]; allowed is \[144\]; run truedrift"
    ):
        build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    del foreign["_blocks.3._bn1.bias"]
    save_file(foreign, cache)
    with pytest.raises(ValueError, match=r"_blocks.3._bn1.bias of .* is missing"):
        build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))
    cache.write_bytes(cache.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"cannot be read .*; allowed is a complete safetensors file; run truedrift"):
        build(EfficientNetLite0Options(), sample_shape=(3, 32, 32))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"image_size": 80}, "image_size is 80; allowed are multiples of 32"),
        ({"image_size": 0}, "image_size is 0; allowed is a whole number of at least 32"),
        ({"taps": (2, 2)}, r"taps is \(2, 2\); allowed are ascending whole numbers from 0 up to 15"),
        ({"taps": (16,)}, r"taps is \(16,\); allowed are ascending"),
        ({"taps": 3}, "taps is 3; allowed are one or more"),
        ({"pooling": "max"}, "pooling is 'max'; allowed are 'mean', 'mean.std', 'patches'"),
    ],
)
def test_wrong_options_name_the_field(options, told):
    with pytest.raises(ValueError, match=told):
        EfficientNetLite0Options(**options)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((2,), 'sample_shape is .2,.; the encoder "efficientnet-lite0" needs images'),
        ((4, 32, 32), "takes 1 or 3 channels"),
        ((3, 32, 40), "takes square images"),
        ((3, 32), r"allowed is \(D,\) for points or \(C, H, W\)"),
    ],
)
def test_wrong_samples_are_told(shape, told):
    with pytest.raises(ValueError, match=told):
        build(EfficientNetLite0Options(), sample_shape=shape)


def test_a_map_of_one_place_has_no_quadrants():
    with pytest.raises(ValueError, match="the smallest feature map is 1×1"):
        build(EfficientNetLite0Options(image_size=32, pooling="patches"), sample_shape=(3, 32, 32))
