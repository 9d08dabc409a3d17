"""Extractors: preprocessing, hashes, pinned networks, and errors."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from truedrift.data import load, to_model_range
from truedrift.encoders import ConvNetOptions, build
from truedrift.evaluation import EXTRACTORS, build_extractor, default_extractor, inception
from truedrift.evaluation import digits_classifier as digits_module
from truedrift.evaluation.inception_network import Convolution, InceptionNetwork
from truedrift.storage import cache_directory

CPU = torch.device("cpu")
GOLDEN = Path(__file__).parents[1] / "golden" / "inception_features.npz"
COLOR = (3, 32, 32)


def literal_resize(image, side):
    """Pixel by pixel: target i reads at i·H/side, and pixels beyond the last one repeat it."""
    height, width = image.shape
    out = torch.empty(side, side, dtype=image.dtype)
    for i in range(side):
        for j in range(side):
            y, x = i * height / side, j * width / side
            top, left = int(y), int(x)
            below, right = min(top + 1, height - 1), min(left + 1, width - 1)
            t, s = y - top, x - left
            upper = (1 - s) * image[top, left] + s * image[top, right]
            lower = (1 - s) * image[below, left] + s * image[below, right]
            out[i, j] = (1 - t) * upper + t * lower
    return out


@pytest.mark.parametrize(("height", "width", "side"), [(4, 4, 11), (5, 3, 7), (6, 6, 4), (8, 8, 8)])
def test_resize_agrees_with_tensorflow_1(height, width, side):
    image = torch.rand(height, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = inception.resize_like_tensorflow1(image[None, None], side)[0, 0]
    assert_close(found, literal_resize(image, side), rtol=0, atol=1e-12)
    if side > height:  # a half-pixel shift would be another picture
        shifted = torch.nn.functional.interpolate(image[None, None], (side, side), mode="bilinear")[0, 0]
        assert float((found - shifted).abs().max()) > 0.05


def test_inception_features_agree_with_recorded_values():
    import numpy as np

    if not (cache_directory("inception") / "default_1.pt").exists():
        pytest.skip("the FID network is not in the cache: run truedrift data fetch inception")
    with np.load(GOLDEN) as golden:
        images = torch.from_numpy(golden["images"][:6])
        expected = torch.from_numpy(golden["features"][:6])
    found = build_extractor("inception", sample_shape=COLOR, device=CPU)(images)
    assert found.probabilities is None
    assert float((found.features - expected).norm() / expected.norm()) < 1e-3


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
def test_inception_network_computes_the_program_of_the_file():
    file = cache_directory("inception") / "default_1.pt"
    if not file.exists():
        pytest.skip("the FID network is not in the cache: run truedrift data fetch inception")
    program = torch.jit.load(str(file)).eval()
    images = torch.rand(2, 3, 299, 299, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        expected, found = program(images), InceptionNetwork.from_program(program)(images)
    assert float((found - expected).norm() / expected.norm()) < 1e-5


def test_average_before_and_after_a_convolution_are_the_same():
    """The order in which the network takes averages of 3×3 pixels, with a bias and at the border."""
    generator = torch.Generator().manual_seed(0)
    values, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((2, 5, 6, 7), (3, 5, 1, 1), (3,))
    )
    network = InceptionNetwork({"conv": Convolution(weight, bias, 1, (0, 0))})
    pooled = torch.nn.functional.avg_pool2d(values, 3, 1, 1, count_include_pad=False)
    expected = torch.nn.functional.conv2d(pooled, weight, bias).relu()
    assert_close(network._apply_average("conv", values), expected, rtol=0, atol=1e-12)


def test_a_file_with_another_hash_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    monkeypatch.setattr("truedrift.evaluation.inception.find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"the Inception network is missing at .*; .*; run truedrift data fetch inception"
    ):
        build_extractor("inception", sample_shape=COLOR, device=CPU)
    (tmp_path / "inception").mkdir()
    (tmp_path / "inception" / "default_1.pt").write_bytes(b"import os")
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(ValueError, match=r"has sha256 .*…; must be 7ff4a85c3a63…; remove it and run"):
        build_extractor("inception", sample_shape=COLOR, device=CPU)


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="torchvision is installed")
def test_abc_release_needs_torchvision():
    with pytest.raises(ValueError, match=r"abc-release needs torchvision, which is not installed; .*; run pip install"):
        build_extractor("abc-release", sample_shape=COLOR, device=CPU)


@pytest.mark.parametrize(("package", "extractor"), [("torch_fidelity", "inception"), ("torchvision", "abc-release")])
def test_a_package_that_does_not_work_is_reported_in_one_line(package, extractor, tmp_path, monkeypatch):
    """For example torchvision with a torch that it was not built for."""
    (tmp_path / f"{package}.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=rf"{package} cannot be used \(.*\); it must match your torch"):
        build_extractor(extractor, sample_shape=COLOR, device=CPU)


def test_unknown_names_and_shapes_are_rejected():
    with pytest.raises(
        ValueError, match=r"the extractor is 'inceptoin'; must be one of 'inception', .*; did you mean 'inception'"
    ):
        build_extractor("inceptoin", sample_shape=COLOR, device=CPU)
    with pytest.raises(ValueError, match=r"samples have shape \(2,\); the extractor inception takes images"):
        build_extractor("inception", sample_shape=(2,), device=CPU)
    with pytest.raises(ValueError, match=r"samples have shape \(3, 32, 32\); the extractor digits takes \(1, 8, 8\)"):
        build_extractor("digits", sample_shape=COLOR, device=CPU)


def test_default_extractors():
    assert [default_extractor(shape) for shape in ((2,), (1, 8, 8), COLOR, (1, 28, 28))] == [
        "encoder:pixels",
        "digits",
        "inception",
        "inception",
    ]
    assert {"inception", "abc-release", "digits", "encoder:dinov2"} <= set(EXTRACTORS)


def test_an_encoder_concatenates_its_groups():
    images = torch.randint(0, 256, (5, *COLOR), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    extractor = build_extractor("encoder:convnet", sample_shape=COLOR, device=CPU)
    groups = build(ConvNetOptions(), sample_shape=COLOR)(to_model_range(images))
    assert extractor(images).features.equal(torch.cat(groups, 1))
    assert extractor.dimensions == sum(group.shape[1] for group in groups)
    pixels = build_extractor("encoder:pixels", sample_shape=COLOR, device=CPU)
    assert pixels.sha256 != extractor.sha256


def test_the_digits_classifier_on_the_test_split():
    extractor = build_extractor("digits", sample_shape=(1, 8, 8), device=CPU)
    test = load("digits", split="test")
    found = extractor(test.values)
    assert found.features.shape == (len(test), 64)
    assert float(found.features.var(0).mean()) == pytest.approx(1, abs=0.2)  # 1 on the train split
    assert_close(found.probabilities.sum(1), torch.ones(len(test)))
    assert float((found.probabilities.argmax(1) == test.labels).double().mean()) > 0.95


@torch.no_grad()
def test_the_weights_of_the_digits_classifier_are_those_that_training_gives():
    """Rounding differs between machines: features of the two networks agree almost, those of another seed do not."""
    test = to_model_range(load("digits", split="test").values)
    torch.set_num_threads(2)
    trained = digits_module.train_classifier()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    network, scale, _ = digits_module.load_classifier()
    features = network[:-1](test) / scale
    again = digits_module._build_network()
    untrained = again[:-1](test)
    again.load_state_dict({name: tensor for name, tensor in trained.items() if name != digits_module.SCALE})
    found = again[:-1](test) / trained[digits_module.SCALE]
    assert float((found - features).norm() / features.norm()) < 0.3
    assert float((untrained / untrained.std() - features).norm() / features.norm()) > 0.5


def test_the_digits_classifier_is_loaded_when_it_is_first_needed():
    state = torch.get_rng_state()
    extractor = build_extractor("digits", sample_shape=(1, 8, 8), device=CPU)
    assert extractor._network is None
    assert extractor(load("digits", split="test").values).features.shape[1] == 64
    assert torch.get_rng_state().equal(state)
