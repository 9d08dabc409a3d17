"""`truedrift evaluate-encoder` as a user runs it: one table for several encoders."""

import re

import pytest

from truedrift.cli import main
from truedrift.data import load
from truedrift.encoders import ConvNetOptions, PixelsOptions, build
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


def test_the_table_has_the_numbers_of_the_library(capsys):
    small = ("network.width=8", "network.blocks=1,1,1,1", "autoencoder.batch=8")
    flags = [flag for setting in small for flag in ("--set", setting)]
    assert main(["train-encoder", "digits", "--steps", "2", "--out", "own", "--device", "cpu", *flags]) == 0
    capsys.readouterr()
    status, out, _ = evaluate(
        capsys, "pixels", "convnet", "own", "--data", "digits", "--train", 300, "--test", 100, "--device", "cpu"
    )
    assert status == 0
    header, pixels, convnet, own, empty, protocol = out.splitlines()
    assert re.split(" {2,}", header) == ["encoder", "features", "k-NN, %", "linear probe, %"]
    train, test = (choose_samples(load("digits", split=s), count) for s, count in (("train", 300), ("test", 100)))
    for line, name, options in ((pixels, "pixels", PixelsOptions()), (convnet, "convnet", ConvNetOptions())):
        result = probe_encoder(build(options, sample_shape=(1, 8, 8)), train, test)
        numbers = [f"{100 * p:.1f} ± {100 * result.error(p):.1f}" for p in (result.neighbors, result.probe)]
        assert re.split(" {2,}", line) == [name, str(result.dimensions), *numbers]
    assert re.fullmatch(r"own +112 +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+", own)  # 16 + 32 + 64 channels
    expected = "100 test images of digits, 300 labeled training images, 10 classes; k = 10, cosine; seed 0"
    assert (empty, protocol) == ("", expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cats",), "the encoder is 'cats'; must be one of pixels, convnet, dinov2, efficientnet-lite0"),
        (("pixels", "--data", "cats"), "the data set is 'cats'; must be one of "),
        (("pixels", "--train", "0"), "train is 0; must be an integer ≥ 1"),
        (("pixels", "--data", "digits", "--train", "5"), "neighbors is 10 and there are 5 training samples"),
        (("pixels", "--data", "digits", "--seed", "-1"), "seed is -1; must be from 0"),
        (("pixels",), "cifar10 is not in the cache"),
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
