"""`truedrift train-encoder` and `truedrift train --encoder` as a user runs them."""

import json
import os
import re
import shlex
import signal
from importlib import import_module

import pytest
import torch
from PIL import Image

from truedrift.cli import main
from truedrift.cli.train_encoder import _next_commands
from truedrift.data.load import IMAGES
from truedrift.encoders import hash_encoder
from truedrift.training import read_metrics
from truedrift.training.config import DataOptions

progress_module = import_module("truedrift.progress_display")

SMALL = ("network.width=8", "network.blocks=1,1", "autoencoder.batch=8", "cadence.log_every=2")
SHORT = (
    'generator={"kind": "mlp", "width": 16, "depth": 1}',
    "batch.n=3",
    "batch.generated=3",
    "objective.matched=false",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=2",
    "cadence.grid_every=none",
    "evaluation.extractor=none",
)

ONE_STEP = (
    "cadence.epochs=1",
    "cadence.steps_per_epoch=1",
    "cadence.grid_every=none",
    "evaluation.extractor=none",
    "optimizer.warmup_steps=0",
)
"""Settings that only make a run of `train` short."""


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def set_flags(*settings):
    return [flag for setting in settings for flag in ("--set", setting)]


def command(capsys, *arguments):
    status = main(list(map(str, arguments)))
    output = capsys.readouterr()
    return status, output.out, output.err


def train_encoder(capsys, *arguments):
    return command(capsys, "train-encoder", *arguments, *set_flags(*SMALL), "--device", "cpu")


def read_next_commands(out):
    """Return the words of the printed commands, as a shell splits them, without the name of the program."""
    lines = out[out.index("next:") :].removeprefix("next:").splitlines()
    commands = [shlex.split(line) for line in lines]
    assert {words[0] for words in commands} == {"truedrift"}
    return [words[1:] for words in commands]


def write_images(folder, sides=(20, 30), count=8, labels=("cats", "dogs")):
    """Write noise, two classes of it by default."""
    for label in labels:
        (folder / label).mkdir(parents=True)
        for number in range(count):
            pixels = torch.randint(256, (*sides, 3), generator=torch.Generator().manual_seed(number)).to(torch.uint8)
            Image.fromarray(pixels.numpy()).save(folder / label / f"{number}.png")
    return folder


def test_output_names_the_run_and_the_next_commands(capsys, directory):
    arguments = ("digits", "--steps", 4, "--classifier-steps", 2)
    status, out, err = train_encoder(capsys, *arguments)
    assert status == 0
    (run,) = (directory / "runs").iterdir()
    assert re.fullmatch(r"encoder-digits-[0-9a-f]{12}", run.name)
    assert err == f"truedrift: encoder-digits: 6 steps in runs/{run.name}\n"
    first, loss, encoder, evaluate, train = out.splitlines()
    assert first == "complete: 6 steps, 48 images seen"
    assert re.fullmatch(r"mean square error of masked pixels [\d.]+, accuracy [\d.]+%", loss)
    assert encoder == f"encoder:  runs/{run.name}/encoder.safetensors"
    assert evaluate == f"next:     truedrift evaluate-encoder runs/{run.name} pixels --data digits"
    assert train == f"          truedrift train digits --encoder runs/{run.name}"
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [2, 4, 6]
    # The same command finds the run.
    status, repeated, err = train_encoder(capsys, *arguments)
    assert (status, repeated) == (0, out)
    assert err == f"truedrift: all 6 steps are already done in runs/{run.name}\n"


@pytest.mark.parametrize(
    ("arguments", "images", "tested", "used"),
    [
        (("digits",), {}, "360 test images of digits", {"name": "digits", "image_size": None}),
        (("--data", "my photos"), {}, "2 images held out of folder", {"name": "folder", "image_size": 32}),
        (
            ("--data", "my photos", "--image-size", "16"),
            {},
            "2 images held out of folder",
            {"name": "folder", "image_size": 16},
        ),
        (
            ("--data", "my photos", "--set", "data.image_size=none", "--set", "data.mirror=false"),
            {"sides": (12, 16)},
            "2 images held out of folder",
            {"name": "folder", "image_size": None, "mirror": False},
        ),
        (
            ("--data", "my photos", "--set", "data.classes=dogs,big cats"),
            {"labels": ("big cats", "cows", "dogs")},
            "3 images held out of folder",
            {"name": "folder", "classes": ["dogs", "big cats"]},
        ),
        (("--data", "my photos"), {"labels": (".",)}, None, {"name": "folder"}),  # no classes, no accuracy
    ],
)
def test_the_next_commands_run_on_the_same_images(capsys, directory, arguments, images, tested, used):
    if arguments[0] == "--data":
        write_images(directory / "my photos", **images)
    status, out, err = train_encoder(capsys, *arguments, "--steps", 1, "--out", "my encoder")
    assert status == 0, err
    *evaluate, train = read_next_commands(out)
    assert [words[0] for words in evaluate] == ([] if tested is None else ["evaluate-encoder"])
    for words in evaluate:
        status, out, err = command(capsys, *words, "--device", "cpu")
        assert status == 0, err
        assert out.splitlines()[-1].startswith(tested)
    status, _, err = command(capsys, *train, *set_flags(*ONE_STEP), "--device", "cpu", "--out", "gen")
    assert status == 0, err
    config = json.loads((directory / "gen" / "config.json").read_text())["config"]
    assert (config["encoder"]["kind"], config["encoder"]["run"]) == ("own", str(directory / "my encoder"))
    assert config["data"] | used == config["data"]


@pytest.mark.parametrize("name", IMAGES)
def test_every_data_set_has_next_commands(capsys, directory, name):
    train_encoder(capsys, "digits", "--steps", 1, "--out", "encoder")
    root = None if name == "digits" else str(directory / "images")
    data = DataOptions(name=name, root=root, image_size=20 if name == "folder" else None, classes=("b", "a"))
    evaluate, train = (shlex.split(line)[1:] for line in _next_commands(data, directory / "encoder", [30, 5]))
    status, out, err = command(capsys, *train, "--print-config")
    assert status == 0, err
    tree = json.loads(out)
    assert DataOptions(**tree["data"] | {"classes": tuple(tree["data"]["classes"])}) == data
    assert (tree["encoder"]["kind"], tree["batch"]["n"]) == ("own", 5)
    status, _, err = command(capsys, *evaluate)
    assert status == 0 if name == "digits" else f"{root!r} does not exist" in err, err


def test_a_small_data_set_counts_the_images_that_it_has(capsys, directory):
    """Four steps of 16 images, although the batch is 64."""
    write_images(directory / "photos")
    arguments = ("--data", "photos", "--steps", 4, "--set", "autoencoder.batch=64", "--image-size", 8)
    flags = set_flags(*(each for each in SMALL if "batch" not in each))
    _, out, err = command(capsys, "train-encoder", *arguments, *flags, "--out", "encoder", "--device", "cpu")
    assert out.startswith("complete: 4 steps, 64 images seen"), err
    assert read_metrics(directory / "encoder" / "metrics.jsonl")[-1]["images_seen"] == 64


def test_a_signal_saves_and_the_same_command_resumes(capsys, directory, monkeypatch):
    train_encoder(capsys, "digits", "--steps", 6, "--out", "whole")
    show = progress_module.ProgressDisplay.__call__

    def interrupt(self, what, done, total):
        show(self, what, done, total)
        if done == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(progress_module.ProgressDisplay, "__call__", interrupt)
        status, out, err = train_encoder(capsys, "digits", "--steps", 6, "--out", "stopped")
    assert (status, out) == (75, "")
    message = "SIGTERM: saved at step 3 of 6 in stopped; run the same command again to continue"
    assert err.splitlines()[-1] == f"truedrift: {message}"
    status, _, err = train_encoder(capsys, "digits", "--steps", 6, "--out", "stopped")
    assert (status, err) == (0, "truedrift: resuming at step 3 of 6 steps in stopped\n")
    assert hash_encoder(directory / "stopped") == hash_encoder(directory / "whole")


def test_a_folder_is_trained_and_then_used_by_train(capsys, directory):
    """From images of the user to a generator whose features are those of the user's own encoder."""
    write_images(directory / "photos")
    status, out, _ = train_encoder(
        capsys, "--data", "photos", "--image-size", 16, "--steps", 2, "--out", "encoder", "--seed", 1
    )
    assert status == 0
    options = "--set batch.n=8 --set data.image_size=16 --encoder encoder"
    assert out.splitlines()[-1] == f"          truedrift train folder --data {directory}/photos {options}"
    config = json.loads((directory / "encoder" / "config.json").read_text())["config"]
    assert config["data"]["image_size"] == 16
    flags = set_flags("data.image_size=16", "optimizer.warmup_steps=1", *SHORT)
    status, _, err = command(
        capsys,
        *("train", "folder", "--data", "photos", "--encoder", "encoder"),
        *flags,
        "--device",
        "cpu",
        "--out",
        "gen",
    )
    assert status == 0, err
    used = json.loads((directory / "gen" / "config.json").read_text())["config"]["encoder"]
    assert (used["kind"], used["run"]) == ("own", str(directory / "encoder"))
    assert used["weights"] == hash_encoder(directory / "encoder")


def test_an_encoder_of_the_settings(capsys, directory):
    """`--set encoder.kind=own --set encoder.run=RUN` is enough; --encoder also fixes the weights and keeps pooling."""
    train_encoder(capsys, "digits", "--steps", 1, "--out", "encoder")
    settings = set_flags("encoder.kind=own", "encoder.run=encoder", "encoder.taps=1,2", *SHORT)
    assert command(capsys, "train", "digits", *settings, "--device", "cpu", "--out", "gen")[0] == 0
    status, out, _ = command(capsys, "train", "digits", "--encoder", "encoder", "--print-config")
    encoder = json.loads(out)["encoder"]
    assert (status, encoder["pooling"], encoder["weights"]) == (0, "locations", hash_encoder(directory / "encoder"))
    tree = {"encoder": {"kind": "convnet", "pooling": "patches"}}
    (directory / "options.json").write_text(json.dumps(tree))
    _, out, _ = command(capsys, "train", "digits", "--encoder", "encoder", "--config", "options.json", "--print-config")
    assert json.loads(out)["encoder"]["pooling"] == "patches"


def test_a_run_is_not_resumed_with_other_weights(capsys):
    train_encoder(capsys, "digits", "--steps", 1, "--out", "encoder")
    flags = ("train", "digits", "--encoder", "encoder", *set_flags("encoder.taps=1,2", *SHORT), "--out", "gen")
    assert command(capsys, *flags, "--device", "cpu")[0] == 0
    train_encoder(capsys, "digits", "--steps", 2, "--out", "encoder")
    status, _, err = command(capsys, *flags, "--device", "cpu")
    assert status == 2
    assert re.search("'gen' holds another run, which differs in encoder.weights", err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no images were given; must be a data set or a directory; pass for example cifar10 or --data DIR"),
        (("two-moons",), "the data set is 'two-moons'; must be one of 'digits', "),
        (("digits", "--steps", "0"), "cadence.autoencoder_steps is 0; must be at least 1"),
        (("digits", "--set", "network.width=9"), "network.width is 9; must be a multiple of 8"),
        (("digits", "--set", "network.depth=9"), "network.depth is unknown; known: width, blocks"),
        (("digits", "--image-size", "16"), "an image size was given for digits"),
        (
            ("digits", "--steps", "50", "--set", "optimizer.schedule=cosine"),
            "optimizer.warmup_steps is 100 with optimizer.schedule cosine and 50 steps; must be below the number of",
        ),
        (
            ("digits", "--set", "optimizer.more_ema=[0.9]"),
            "optimizer.more_ema is (0.9,); must be empty, since an encoder has one average, that of optimizer.ema; ",
        ),
        (("--data", "nowhere"), "nowhere' does not exist; must be a directory or an archive"),
    ],
)
def test_mistakes_are_one_line(capsys, directory, arguments, message):
    status, out, err = command(capsys, "train-encoder", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (directory / "runs").exists()


def test_a_classifier_needs_classes(capsys, directory):
    write_images(directory / "photos", labels=(".",))
    status, out, err = train_encoder(capsys, "--data", "photos", "--steps", 1, "--classifier-steps", 2)
    assert (status, out) == (2, "")
    message = "cadence.classifier_steps is 2 and folder has 1 class; a classifier needs two or more; leave it out, or"
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (directory / "runs").exists()
    assert train_encoder(capsys, "--data", "photos", "--steps", 1)[0] == 0


def test_an_encoder_of_other_images_is_refused(capsys, directory):
    write_images(directory / "photos")
    train_encoder(capsys, "--data", "photos", "--image-size", 16, "--steps", 1, "--out", "encoder")
    train = ("train", "folder", "--data", "photos", "--n", 6, "--encoder", "encoder", *set_flags(*ONE_STEP))
    status, _, err = command(capsys, *train, "--device", "cpu")
    assert status == 2
    assert "was trained on images (3, 16, 16) and the samples are (3, 32, 32); both must have the same shape; " in err
    assert "use the data set and the image size that it was trained on, or train an encoder on these images" in err


def test_a_recipe_without_its_encoder_names_the_flag(capsys, directory):
    """`cifar10-own` has no encoder of its own; the images are of a folder, which every machine has."""
    write_images(directory / "photos")
    data = set_flags("data.name=folder", "data.image_size=32", f"data.root={directory / 'photos'}", "batch.n=6")
    status, _, err = command(capsys, "train", "cifar10-own", *data, "--device", "cpu")
    assert status == 2
    assert "encoder.run is not set; must be the directory of a complete run of truedrift train-encoder; " in err
    assert "pass --encoder RUN" in err


def test_an_unfinished_or_missing_encoder_is_refused(capsys, directory):
    status, _, err = command(capsys, "train", "digits", "--encoder", "nowhere")
    assert status == 2
    assert "encoder.run is 'nowhere', which does not exist; must be the directory of a complete run" in err
    (directory / "half").mkdir()
    status, _, err = command(capsys, "train", "digits", "--encoder", "half")
    assert status == 2
    assert "encoder.run is 'half', where encoder.safetensors is missing or damaged" in err


def test_print_config(capsys, directory):
    arguments = ("digits", "--seed", 3, "--set", "optimizer.ema=0.9", "--print-config")
    status, out, err = command(capsys, "train-encoder", *arguments)
    tree = json.loads(out)
    assert (status, err) == (0, "")
    assert (tree["seed"], tree["optimizer"]["ema"], tree["data"]["name"]) == (3, 0.9, "digits")
    assert list(directory.iterdir()) == []
