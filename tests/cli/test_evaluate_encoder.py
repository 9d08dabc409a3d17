"""`truedrift evaluate-encoder` as a user runs it: one table for several encoders."""

import re

import pytest
import torch
from PIL import Image

from truedrift.cli import main
from truedrift.data import load
from truedrift.encoders import ConvNetOptions, OwnEncoderOptions, PixelsOptions, build
from truedrift.evaluation import hold_out
from truedrift.evaluation.probe import choose_samples, probe_encoder


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def evaluate(capsys, *arguments):
    status = main(["evaluate-encoder", *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err


def train_own(capsys, *arguments, blocks="1,1,1,1"):
    """Train a small encoder in the directory own."""
    small = ("network.width=8", f"network.blocks={blocks}", "autoencoder.batch=8")
    flags = [flag for setting in small for flag in ("--set", setting)]
    assert main(["train-encoder", *arguments, "--steps", "2", "--out", "own", "--device", "cpu", *flags]) == 0
    capsys.readouterr()


def format_row(name, result):
    """Return the cells of an encoder."""
    numbers = [f"{100 * p:.1f} ± {100 * result.error(p):.1f}" for p in (result.neighbors, result.probe)]
    return [name, str(result.dimensions), *numbers]


def choose_digits(train, test):
    return tuple(choose_samples(load("digits", split=s), count) for s, count in (("train", train), ("test", test)))


def write_classes(folder, count):
    """Write images of noise, dark and bright ones, as two classes."""
    generator = torch.Generator().manual_seed(0)
    for label, offset in (("bright", 60), ("dark", 0)):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            pixels = (torch.randint(190, (10, 8, 3), generator=generator) + offset).to(torch.uint8)
            Image.fromarray(pixels.numpy()).save(folder / label / f"{number}.png")


def test_the_table_has_the_numbers_of_the_library(capsys):
    train_own(capsys, "digits")
    status, out, _ = evaluate(
        capsys, "pixels", "convnet", "own", "--data", "digits", "--train", 300, "--test", 100, "--device", "cpu"
    )
    assert status == 0
    header, pixels, convnet, own, empty, protocol = out.splitlines()
    assert re.split(" {2,}", header) == ["encoder", "features", "k-NN, %", "linear probe, %"]
    train, test = choose_digits(300, 100)
    for line, name, options in ((pixels, "pixels", PixelsOptions()), (convnet, "convnet", ConvNetOptions())):
        result = probe_encoder(build(options, sample_shape=(1, 8, 8)), train, test)
        assert re.split(" {2,}", line) == format_row(name, result)
    assert re.fullmatch(r"own +112 +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+", own)  # 16 + 32 + 64 channels
    expected = "100 test images of digits, 300 labeled training images, 10 classes; k = 10, cosine; seed 0"
    assert (empty, protocol) == ("", expected)


def test_settings_are_for_every_encoder_that_has_the_option(capsys):
    """The later one of two settings counts, and pixels have no taps."""
    train_own(capsys, "digits")
    settings = ("--set", "taps=1,4", "--set", "channels=8,4", "--set", "taps=3")
    arguments = ("--data", "digits", "--train", 100, "--test", 50, "--device", "cpu", *settings)
    status, out, err = evaluate(capsys, "own", "convnet", "pixels", *arguments)
    assert status == 0, err
    encoders = {
        "own": OwnEncoderOptions(run="own", taps=(3,)),
        "convnet": ConvNetOptions(channels=(8, 4)),
        "pixels": PixelsOptions(),
    }
    _, *lines, _, protocol = out.splitlines()
    for line, (name, options) in zip(lines, encoders.items(), strict=True):
        result = probe_encoder(build(options, sample_shape=(1, 8, 8)), *choose_digits(100, 50))
        assert re.split(" {2,}", line) == format_row(name, result)
    assert protocol.endswith("; k = 10, cosine; seed 0; taps=1,4; channels=8,4; taps=3")


def test_an_own_encoder_of_two_stages_has_default_taps(capsys):
    train_own(capsys, "digits", blocks="1,1")
    status, out, err = evaluate(capsys, "own", "--data", "digits", "--train", 100, "--test", 50, "--device", "cpu")
    assert status == 0, err
    assert re.match(r"own +24 ", out.splitlines()[1])  # 8 + 16 channels


@pytest.mark.parametrize("test", [6, 1])
def test_images_of_a_folder_without_a_test_split_are_held_out(capsys, directory, test):
    write_classes(directory / "photos", 20)
    train_own(capsys, "--data", "photos", "--image-size", "8")
    arguments = ("--data", "folder", "--root", "photos", "--image-size", 8, "--test", test, "--device", "cpu")
    status, out, err = evaluate(capsys, "own", "pixels", *arguments)
    assert status == 0, err
    # The held-out images are not among the labeled ones.
    images = load("folder", root=directory / "photos", image_size=8)
    train, held_out = hold_out(images, None, max(2, test))
    train, held_out = choose_samples(train, 1000), choose_samples(held_out, test)
    result = probe_encoder(build(PixelsOptions(), sample_shape=(3, 8, 8)), train, held_out)
    _, _, pixels, _, protocol = out.splitlines()
    assert re.split(" {2,}", pixels) == format_row("pixels", result)
    seen = "(an encoder that was trained on this folder has seen them)"
    assert protocol.startswith(
        f"{test} images held out of folder, which has no test split {seen}, {40 - max(2, test)} labeled training images"
    )
    # Other encoders have not seen them.
    _, out, _ = evaluate(capsys, "pixels", *arguments)
    assert f"{test} images held out of folder, which has no test split, " in out


def test_the_test_split_of_a_folder_is_used(capsys, directory):
    write_classes(directory / "photos" / "train", 10)
    write_classes(directory / "photos" / "test", 3)
    status, out, err = evaluate(capsys, "pixels", "--data", "folder", "--root", "photos", "--device", "cpu")
    assert status == 0, err
    assert out.splitlines()[-1].startswith("6 test images of folder, 20 labeled training images, 2 classes")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cats",), "the encoder is 'cats'; must be one of pixels, convnet, dinov2, efficientnet-lite0"),
        (("pixels", "--data", "cats"), "the data set is 'cats'; must be one of "),
        (("pixels", "--train", "0"), "train is 0; must be an integer ≥ 1"),
        (("pixels", "--data", "digits", "--train", "5"), "neighbors is 10 and there are 5 training samples"),
        (("pixels", "--data", "digits", "--seed", "-1"), "seed is -1; must be from 0"),
        (("pixels",), "cifar10 is not in the cache"),
        (("pixels", "--data", "folder"), "no directory was given; the data set folder needs one"),
        (
            ("pixels", "convnet", "--set", "taps=1"),
            "the setting 'taps=1' fits none of the encoders pixels, convnet; their options are channels, pooling, seed",
        ),
        (("pixels", "--set", "kind=convnet"), "the setting 'kind=convnet' fits none of the encoders pixels; "),
        (("pixels", "--set", "pooling"), "the setting is 'pooling'; must be option=value; write for example"),
        (("efficientnet-lite0", "--set", "image_size=33"), "efficientnet-lite0: image_size is 33; must be a multiple"),
        (("efficientnet-lite0", "--data", "digits"), "the EfficientNet-Lite0 weights"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message):
    status, out, err = evaluate(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_directory_without_an_encoder_is_refused(capsys, directory):
    (directory / "empty").mkdir()
    status, _, err = evaluate(capsys, "empty", "--data", "digits")
    assert status == 2
    assert "run is 'empty', where encoder.safetensors is missing or damaged" in err
