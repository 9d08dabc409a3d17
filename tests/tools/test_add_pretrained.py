"""The tool that adds a model to the package: the same bytes again, the numbers of the run, and what it refuses."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from truedrift.cli import main
from truedrift.data import to_uint8
from truedrift.errors import UserError
from truedrift.evaluation import EvaluationRecord
from truedrift.generators import find_pretrained, from_pretrained, pretrained, pretrained_names, sample
from truedrift.recipes import recipe
from truedrift.records import read
from truedrift.training import load_generator, open_run
from truedrift.training.pictures import image_grid

ROOT = Path(__file__).parents[2]
MODEL = pytest.mark.parametrize("name", pretrained_names())
SETTINGS = (
    *("seed=3", "generator.width=32", "generator.depth=1", "batch.n=4", "optimizer.warmup_steps=1"),
    *("optimizer.ema=0.9", "optimizer.more_ema=[0.5]", "cadence.epochs=1", "cadence.steps_per_epoch=12"),
    *("cadence.grid_every=none", "evaluation.samples=80"),
)


def load_tool(name):
    """Import tools/NAME.py, which is a script and not part of the package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


tool = load_tool("add_pretrained")


def train(out, *settings):
    words = [word for each in (*SETTINGS, *settings) for word in ("--set", each)]
    assert main(["train", "digits", *words, "--device", "cpu", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of twelve steps, evaluated during training with 80 samples and afterward with 100."""
    directory = tmp_path_factory.mktemp("added")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(directory / "cache"))
        train(directory / "run")
        evaluate = ["evaluate", str(directory / "run"), "--device", "cpu"]
        assert main([*evaluate, "--samples", "100"]) == 0
        assert main([*evaluate, "--samples", "90", "--ema", "0.5"]) == 0
        assert main([*evaluate, "--neighbors", "--samples", "20", "--held-out", "20"]) == 0
        yield directory / "run"


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    first = tool.add_model(run, "mine", models=tmp_path)
    content = files(first)
    (first / "old").touch()
    assert tool.add_model(run, "mine", models=tmp_path) == first
    assert files(first) == content
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert {oct(path.stat().st_mode & 0o777) for path in first.iterdir()} == {"0o644"}


def test_record_and_weights_are_those_of_the_run(run, tmp_path):
    folder = tool.add_model(run, "mine", machine="a machine", models=tmp_path)
    record = json.loads((folder / "record.json").read_text())
    loaded = load_generator(run)
    assert record["classes"] == list(loaded.classes)
    assert (record["run"], record["steps"], record["decay"]) == (open_run(run).id, 12, 0.9)
    assert record["machine"] == "a machine"
    (evaluation,) = record["evaluations"]  # the one with more samples
    expected = next(each for each in read(run / "evaluations.jsonl", EvaluationRecord) if each.protocol.samples == 100)
    assert evaluation["metrics"]["fid"] == expected.metrics.fid
    assert "of 20 samples" in record["neighbors"]
    labels = torch.arange(10)
    images, rounded = (to_uint8(sample(each, labels, seed=7)) for each in (loaded.generator, from_pretrained(folder)))
    assert (images.int() - rounded.int()).abs().max() <= max(1, record["rounding"]["largest"])
    assert not torch.equal(loaded.generator.first.weight, from_pretrained(folder).first.weight)


def test_a_guided_run_is_shown_at_its_default_strength(tmp_path):
    guided = ("batch.unconditional=4", "objective.matched=false", "condition.strength_high=3", "evaluation.strength=2")
    run = train(tmp_path / "run", *guided)
    folder = tool.add_model(run, "mine", models=tmp_path / "models")
    record = json.loads((folder / "record.json").read_text())
    assert record["strength"] == 2
    assert record["evaluations"][0]["protocol"]["strength"] == 2
    card = (folder / "README.md").read_text()
    assert "| guidance | strengths from 1 to 3 (`--strength`), 2 if none is given |" in card
    images = sample(load_generator(run).generator, torch.arange(10).repeat_interleave(10), seed=0, strength=2.0)
    with Image.open(folder / "samples.png") as picture:
        assert np.array_equal(np.array(picture), image_grid(images, 10).numpy())


def test_cards_are_written_again_from_their_records(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretrained, "MODELS", tmp_path)
    folder = tool.add_model(run, "mine", models=tmp_path)
    content = files(folder)
    record = json.loads(content["record.json"])
    (folder / "README.md").unlink()
    (folder / "record.json").write_text(json.dumps(record | {"command": "an old one", "summary": "an old one"}))
    assert tool.main(["--cards"]) == 0
    assert files(folder) == content
    assert capsys.readouterr().out.startswith(f"pretrained:mine: {record['summary']}\n")
    for wrong in (["--cards", "run", "mine"], ["run"], []):
        with pytest.raises(SystemExit, match="2"):
            tool.main(wrong)


def test_another_average_comes_with_its_own_metrics(run, tmp_path):
    folder = tool.add_model(run, "mine", ema=0.5, models=tmp_path)
    record = json.loads((folder / "record.json").read_text())
    assert (record["decay"], record["neighbors"]) == (0.5, None)
    assert [(each["protocol"]["weights"], each["protocol"]["samples"]) for each in record["evaluations"]] == [
        ("ema 0.5", 90)
    ]
    expected = load_generator(run, ema=0.5).generator.first.weight
    assert torch.equal(from_pretrained(folder).first.weight, expected.half().float())


def test_the_command_gives_the_configuration_of_the_run(run):
    config = open_run(run).config
    words = shlex.split(tool.train_command(config))
    assert words[:3] == ["truedrift", "train", "digits"]
    assert words[3::2] == ["--set"] * (len(words[3:]) // 2)
    assert recipe("digits", settings=words[4::2]) == config
    assert tool.train_command(recipe("digits")) == "truedrift train digits"


@pytest.mark.parametrize(
    "settings",
    [
        ("data.classes=automobile,truck", "optimizer.schedule=cosine", "optimizer.clip=none"),
        ('generator={"kind":"mlp","width":8}', "encoders=[]", "encoder.pooling=pyramid"),
        ("objective.temperatures=0.1,0.5", "engine.compiled=true"),
    ],
)
def test_commands_of_other_configurations(settings):
    config = recipe("cifar10-cpu", settings=settings)
    words = shlex.split(tool.train_command(config))
    assert recipe("cifar10-cpu", settings=words[4::2]) == config != recipe("cifar10-cpu")


def test_the_largest_difference_is_that_of_the_worst_pixel():
    images = torch.full((4, 1, 2, 2), 100, dtype=torch.uint8)
    rounded = images.clone()
    rounded[2, 0, 1, 0] -= 2
    rounded[3, 0, 0, 0] += 1
    assert tool.compare_rounded(images, rounded) == {"samples": 4, "largest": 2, "changed": 0.125}
    rounded[0, 0, 0, 0] = 0
    with pytest.raises(UserError, match=r"^float16 weights change the images by up to 100 gray levels; .* at most 2; "):
        tool.compare_rounded(images, rounded)


def test_weights_that_do_not_survive_rounding_are_refused(run, tmp_path, monkeypatch):
    loaded = load_generator(run)
    with torch.no_grad():  # float16 ends at 65,504
        loaded.generator.first.weight.mul_(1e6)
    monkeypatch.setattr(tool, "load_generator", lambda *_, **__: loaded)
    with pytest.raises(UserError, match="float16 weights change the images by up to"):
        tool.add_model(run, "mine", models=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_without_evaluation_or_end_is_refused(run, tmp_path, capsys):
    plain = train(tmp_path / "plain", "evaluation.extractor=none")
    with pytest.raises(
        UserError, match=r"has no evaluation of the ema weights at step 12; .*; run truedrift evaluate "
    ):
        tool.add_model(plain, "mine", models=tmp_path / "models")
    history = (plain / "history.jsonl").read_text().splitlines()
    (plain / "history.jsonl").write_text(f"{history[0]}\n")
    with pytest.raises(UserError, match=r"'.*plain' is not complete; must have taken all its steps; "):
        tool.add_model(plain, "mine", models=tmp_path / "models")
    with pytest.raises(UserError, match=r"name is '\.\./x'; must be lower-case letters"):
        tool.add_model(run, "../x", models=tmp_path / "models")
    capsys.readouterr()
    assert tool.main([str(tmp_path / "none"), "mine"]) == 2
    assert re.fullmatch("error: '.*none' does not exist; .*\n", capsys.readouterr().err)
    assert not list((tmp_path / "models").iterdir())


# The models in the package


@MODEL
def test_the_card_is_written_from_the_record(name):
    model = find_pretrained(name)
    assert (model.folder / "README.md").read_text(encoding="utf-8") == tool.render_card(model.record)
    assert model.summary == tool.summarize(model.record)


@MODEL
def test_the_card_states_the_numbers_of_the_record(name):
    """Read back from the card as a person would."""
    model = find_pretrained(name)
    card, record = (model.folder / "README.md").read_text(encoding="utf-8"), model.record
    facts = dict(re.findall(r"^\| ([\w ]+) \| (.+) \|$", card, re.MULTILINE))
    assert facts["sha256"] == f"`{record['sha256']}`"
    assert facts["command"] == f"`{record['command']}`"
    assert facts["machine"] == record["machine"]
    assert facts["classes"].split(", ") == list(record["classes"])
    assert int(re.search(r"([\d,]+) parameters", facts["network"])[1].replace(",", "")) == record["parameters"]
    assert int(re.search(r"\(([\d,]+) s\)", facts["time"])[1].replace(",", "")) == round(record["seconds"])
    rows = re.findall(r"^\| (?:FID|FD \([\w:-]+\)) ([\d.e+]+) \| .*; ([\d,]+) images of ", card, re.MULTILINE)
    expected = [(each["metrics"]["fid"], each["protocol"]["reference_count"]) for each in record["evaluations"]]
    assert len(rows) == len(expected) >= 1
    for (fid, count), (exact_fid, exact_count) in zip(rows, expected, strict=True):
        assert float(fid) == pytest.approx(exact_fid, rel=1e-3)
        assert int(count.replace(",", "")) == exact_count
    assert f"at most {record['rounding']['largest']} of 255 gray levels" in card
    assert facts["license of the data"] == record["data"]["license"]


@MODEL
def test_the_command_of_the_card_gives_the_recorded_configuration(name):
    record = find_pretrained(name).record
    program, command, recipe_name, *settings = shlex.split(record["command"])
    assert (program, command) == ("truedrift", "train")
    assert recipe(recipe_name, settings=settings[1::2]) == recipe(recipe_name, tree=record["config"])
