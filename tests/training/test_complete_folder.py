"""A complete run on a folder of images is recognized without reading the images, unless anything has changed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from oracles.outcomes import read_outcome
from PIL import Image
from short_runs import run, short_config

from truedrift.cli import main
from truedrift.data import folder
from truedrift.errors import UserError

SETTINGS = (
    'encoder={"kind": "pixels"}',
    "encoders=[]",
    "objective.pixels=false",
    "objective.locations=none",
    'generator={"kind": "mlp", "width": 16, "depth": 1, "noise": 4, "embedding": 4}',
    "batch.labels=none",
    "batch.generated=3",
    "objective.matched=false",
    "optimizer.schedule=constant",
)
DONE = "all 8 steps are already done in {}"
OLD = 10**18
"""A time of modification in the year 2001, in nanoseconds."""


def save(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), value, dtype=np.uint8)).save(path)


@pytest.fixture
def decoded(tmp_path, monkeypatch):
    """The images that are decoded, in a directory with a cache of its own."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    paths, read_pixels = [], folder._read_pixels

    def read(path, **options):
        paths.append(path)
        return read_pixels(path, **options)

    monkeypatch.setattr(folder, "_read_pixels", read)
    return paths


@pytest.fixture
def images(tmp_path):
    for number in range(8):
        save(tmp_path / "images" / "ab"[number % 2] / f"{number}.bmp", 10 * number)
        os.utime(tmp_path / "images" / "ab"[number % 2] / f"{number}.bmp", ns=(OLD, OLD))
    return tmp_path / "images"


@pytest.fixture
def complete(tmp_path, images, decoded):
    """The configuration and the directory of a complete run."""
    config = short_config("folder", *SETTINGS, data=str(images))
    run(config, tmp_path / "run")
    assert len(decoded) == 8
    decoded.clear()
    return config, tmp_path / "run"


def repeat(complete, **options):
    """Run the same configuration again; return the steps of the reports, and the messages."""
    messages = []
    reports = run(*complete, notify=messages.append, **options)
    return [report.step for report in reports], messages


def test_a_complete_run_is_recognized_without_its_images(complete, decoded):
    _, path = complete
    files = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    first = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    (report,) = run(*complete)
    assert (report.step, report.complete) == (8, True)
    assert report.metrics == {name: value for name, value in first.items() if name != "timing"}
    assert repeat(complete) == ([8], [DONE.format(path)])
    assert decoded == []
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == files


def test_a_touched_image_is_read_again_and_a_changed_one_is_refused(complete, images, decoded):
    _, path = complete
    os.utime(images / "a" / "0.bmp")
    assert repeat(complete) == ([8], [DONE.format(path)])
    assert len(decoded) == 8
    decoded.clear()
    assert repeat(complete) == ([8], [DONE.format(path)])  # the new time is known
    assert decoded == []
    save(images / "a" / "0.bmp", 99)
    with pytest.raises(UserError, match=r"holds another run, which differs in data\.sha256 \("):
        repeat(complete)
    assert len(decoded) == 8
    with pytest.raises(UserError, match=r"holds another run, which differs in data\.sha256 \("):
        repeat(complete)


def test_a_wrong_digest_in_the_cache_decides_nothing(complete, tmp_path, decoded):
    (file,) = (tmp_path / "cache" / "folders").iterdir()
    known = file.read_text()
    file.write_text(known.replace('"sha256": "', '"sha256": "0')[: len(known)] + '"}}')
    assert repeat(complete) == ([8], [DONE.format(complete[1])])
    assert len(decoded) == 8
    assert file.read_text() == known


def remove_complete_event(path):
    lines = (path / "history.jsonl").read_text().splitlines(keepends=True)
    (path / "history.jsonl").write_text("".join(lines[:-1]))


def damage_checkpoint(path):
    (path / "checkpoints" / "step-00000008" / "ema.safetensors").write_bytes(b"damaged")


def add_unfinished_checkpoint(path):
    (path / "checkpoints" / "step-00000009").mkdir()


def damage_log(path):
    content = (path / "metrics.jsonl").read_bytes()
    (path / "metrics.jsonl").write_bytes(content.replace(b'"step": 4', b'"step": 5'))


def append_to_log(path):
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9}\n')


def change_config(path):
    document = json.loads((path / "config.json").read_text())
    document["config"]["cadence"]["keep_last"] = 7
    (path / "config.json").write_text(json.dumps(document))


CHANGES = {
    "no complete event": (remove_complete_event, DONE),
    "damaged checkpoint": (damage_checkpoint, "checkpoint step-00000008 was skipped"),
    "unfinished checkpoint": (add_unfinished_checkpoint, "checkpoint step-00000009 was skipped"),
    "damaged log": (damage_log, "metrics.jsonl' does not match the checkpoint"),
    "longer log": (append_to_log, DONE),
    "no log": (lambda path: (path / "metrics.jsonl").unlink(), "metrics.jsonl' does not match the checkpoint"),
    "other options": (change_config, DONE),
    "damaged config": (lambda path: (path / "config.json").write_text("{"), "is not the configuration of a run"),
}
"""Name → a change of the files of a run, and a message on it."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_whose_files_have_changed_is_opened_with_its_images(complete, name, decoded):
    _, path = complete
    change, message = CHANGES[name]
    state = read_outcome(path).state
    change(path)
    steps, messages = repeat(complete)
    assert (steps[-1], len(decoded)) == (8, 8)
    assert any(message.format(path) in each for each in messages)
    assert read_outcome(path).state == state
    # What was repaired is recognized. A newer checkpoint stays unfinished.
    _, messages = repeat(complete)
    assert len(decoded) == (16 if name == "unfinished checkpoint" else 8)
    assert messages[-1] == DONE.format(path)


def test_several_processes_read_the_images(complete, monkeypatch, decoded):
    """They compare their data, so that one alone must not end."""
    from truedrift.training import Parts
    from truedrift.training.train import find_complete, run_directory

    directory = run_directory(complete[0], Parts(), complete[1])
    assert find_complete(directory, evaluated=False, notify=print).step == 8
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert find_complete(directory, evaluated=False, notify=print) is None


def test_a_missing_evaluation_is_made_and_then_known(complete, decoded):
    def evaluate(generator, step):
        return {"fid": 3.5}

    steps, messages = repeat(complete, evaluate=evaluate)
    assert (steps, len(decoded)) == ([8], 8)
    assert messages[-1] == "step 8 is the last step and has no evaluation; evaluating it now"
    decoded.clear()
    assert repeat(complete, evaluate=evaluate) == ([8], [DONE.format(complete[1])])
    assert repeat(complete) == ([8], [DONE.format(complete[1])])
    assert decoded == []


def test_the_commands_say_so_as_well(images, decoded, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ("network.width=8", "network.blocks=1", "autoencoder.batch=4", "data.image_size=4")
    words = ["train-encoder", "--data", "images", "--steps", "2", "--device", "cpu", "--out", "encoder"]
    words += [flag for setting in settings for flag in ("--set", setting)]
    assert main(words) == 0
    first = capsys.readouterr()
    decoded.clear()
    assert main(words) == 0
    repeated = capsys.readouterr()
    assert (repeated.out, repeated.err) == (first.out, "truedrift: all 2 steps are already done in encoder\n")
    assert decoded == []
    Path("encoder/encoder.safetensors").unlink()  # it is written again
    assert main(words) == 0
    assert capsys.readouterr().out == first.out
    assert Path("encoder/encoder.safetensors").is_file()
    assert len(decoded) == 8
