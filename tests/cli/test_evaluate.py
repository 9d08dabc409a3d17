"""`truedrift evaluate` as a user runs it."""

import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from PIL import Image

from truedrift.cli import evaluate as evaluate_module
from truedrift.cli import main
from truedrift.data import load, to_model_range
from truedrift.evaluation import EvaluationRecord, NeighborsRecord, hold_out
from truedrift.generators import Generator, MLPOptions, find_pretrained
from truedrift.page.findings import describe_protocol
from truedrift.recipes import recipe
from truedrift.records import read
from truedrift.training import load_generator, train
from truedrift.training.load import LoadedGenerator

SMALL = (
    "generator.width=16",
    "generator.depth=1",
    "batch.n=3",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=4",
    "cadence.grid_every=none",
    "evaluation.samples=80",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of four steps, evaluated at its end, with a separate cache."""
    directory = tmp_path_factory.mktemp("evaluated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(directory / "cache"))
        settings = [each for one in SMALL for each in ("--set", one)]
        assert main(["train", "digits", *settings, "--device", "cpu", "--out", str(directory / "run")]) == 0
        yield directory


def evaluate(capsys, *arguments):
    status = main(["evaluate", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_numbers_are_printed_and_recorded_with_their_protocol(capsys, place):
    status, out, _ = evaluate(capsys, place / "run", "--device", "cpu")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == f"{place / 'run'}, step 4, ema weights"
    assert re.fullmatch(r"FD \(digits\) +[\d.]+ +80 samples", lines[1])
    assert re.fullmatch(r"KID +[\d.e+]+ ± [\d.e+]+ +unbiased, all pairs of 80 samples and 1437 of the data", lines[2])
    assert re.fullmatch(r"precision +[\d.]+ +k = 3, 80 samples and 1437 of the data", lines[3])
    assert re.fullmatch(r"recall +[\d.]+ +k = 3, 80 samples and 1437 of the data", lines[4])
    assert re.fullmatch(r"Inception Score +[\d.]+ +all samples at once", lines[5])
    assert re.fullmatch(r"features: digits, sha256 [0-9a-f]{12}, uint8 → \[−1, 1\], 64 dimensions", lines[6])
    assert re.fullmatch(r"data:     digits, split train, 1437 samples, sha256 [0-9a-f]{12}", lines[7])
    assert lines[8] == "samples:  80, labels balanced, seed 0, strength 1, ema weights"
    (record, *_) = read(place / "run" / "evaluations.jsonl", EvaluationRecord)
    assert (record.run, record.step, record.protocol.samples) == ("run", 4, 80)
    assert f"{record.metrics.fid:.4g}" in lines[1]


def test_a_score_without_a_classifier_is_not_available(capsys, place):
    status, out, _ = evaluate(
        capsys, place / "run", "--extractor", "encoder:pixels", "--samples", 50, "--split", "test", "--device", "cpu"
    )
    assert status == 0
    assert re.search(r"^FD \(encoder:pixels\) +[\d.]+ +50 samples$", out, re.MULTILINE)
    assert re.search(r"^Inception Score +not available +encoder:pixels has no classifier$", out, re.MULTILINE)
    assert "digits, split test, 360 samples" in out


@pytest.fixture
def weights(place, tmp_path):
    """A folder of the weights of the run."""
    load_generator(place / "run").generator.save_pretrained(tmp_path / "weights")
    return tmp_path / "weights"


def test_a_pretrained_model_is_evaluated_as_its_run_was(capsys, place, tmp_path, monkeypatch):
    """Data, extractor and split are those of the run. Fewer samples change precision, recall and score little."""
    monkeypatch.chdir(tmp_path)
    (recorded, *_) = find_pretrained("pretrained:digits").record["evaluations"]
    status, out, _ = evaluate(capsys, "pretrained:digits", "--samples", 500, "--device", "cpu")
    assert status == 0
    written = Path("runs/pretrained-digits/evaluations.jsonl")
    assert (out.splitlines()[0], out.splitlines()[-1]) == ("pretrained:digits", f"written: {written}")
    (record,) = read(written, EvaluationRecord)
    assert (record.run, record.step) == ("pretrained:digits", None)
    changed = {"samples": 500, "extractor_sha256": recorded["protocol"]["extractor_sha256"]}  # of this machine
    assert asdict(record.protocol) | changed == recorded["protocol"] | {"samples": 500}
    for name, tolerance in (("precision", 0.06), ("recall", 0.06), ("inception_score", 0.3)):
        assert getattr(record.metrics, name) == pytest.approx(recorded["metrics"][name], abs=tolerance)


def test_a_folder_of_weights_is_compared_with_the_given_data(capsys, place, weights):
    status, _, _ = evaluate(capsys, weights, "--data", "digits", "--samples", 80, "--device", "cpu")
    assert status == 0
    (record,) = read(weights / "evaluations.jsonl", EvaluationRecord)
    assert record.step is None
    assert record.metrics == read_last(capsys, place, "digits").metrics


RUN = "must be a run directory or a folder of weights; pass the path that .+ printed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], f"'nowhere' does not exist; {RUN}"),
        (["CACHE"], f"'.*cache' has no config.json; {RUN}"),
        (
            ["RUN", "--extractor", "fid"],
            "the extractor is 'fid'; must be one of 'inception', 'abc-release', .*; choose one of these",
        ),
        (
            ["RUN", "--samples", "1"],
            "samples is 1; must be at least 2 and at most 10000000; set samples to an allowed value",
        ),
        (["RUN", "--batch", "0"], "batch is 0; must be an integer ≥ 1; pass for example 256"),
        (["RUN", "--strength", "-1"], "strength is -1.0; must be from 0 to 1e6; pass for example 2"),
        (
            ["RUN", "--data", "four-modes"],
            r"samples of the generator have shape \(1, 8, 8\); must be \(2,\), the shape of four-modes; "
            "pass the data set that the generator was trained on",
        ),
        (
            ["RUN", "--data", "cifar10"],
            r"cifar10 is not in the cache \('.*cifar10'\); must be fetched first, or be your own copy; "
            r"run truedrift data fetch cifar10, or add --data DIR \(evaluate: --root DIR\)",
        ),
        (
            ["RUN", "--extractor", "inception"],
            "the Inception network is missing at '.*'; it must be in the cache; run truedrift data fetch inception",
        ),
        (
            ["WEIGHTS"],
            "'.*weights' is a folder of weights; the data set to compare with must be given; "
            "add for example --data cifar10",
        ),
    ],
)
def test_every_mistake_is_one_line(capsys, place, weights, arguments, message):
    places = {"RUN": place / "run", "CACHE": place / "cache", "WEIGHTS": weights}
    status, out, err = evaluate(capsys, *(places.get(each, each) for each in arguments), "--device", "cpu")
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)


@pytest.mark.slow
def test_two_processes_agree_with_one(capsys, place):
    """torchrun with gloo; the reference is computed by both, in a separate cache."""
    one = read_last(capsys, place, "encoder:convnet")
    environment = os.environ | {"TRUEDRIFT_CACHE": str(place / "cache-of-two"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    arguments = ["truedrift", "evaluate", str(place / "run"), "--extractor", "encoder:convnet", "--device", "cpu"]
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("FD (encoder:convnet)") == 1
    two = read(place / "run" / "evaluations.jsonl", EvaluationRecord)[-1]
    assert two.protocol == one.protocol
    numbers = [[value for value in vars(each.metrics).values() if value is not None] for each in (one, two)]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-6)


def read_last(capsys, place, extractor):
    status, _, err = evaluate(capsys, place / "run", "--extractor", extractor, "--device", "cpu")
    assert status == 0, err
    return read(place / "run" / "evaluations.jsonl", EvaluationRecord)[-1]


# Strengths


def test_several_strengths_make_a_table_and_a_plot(capsys, place, tmp_path):
    status, out, _ = evaluate(
        capsys, place / "run", "--strength", 1, 4, 2.5, "--samples", 60, "--device", "cpu", "--out", tmp_path
    )
    assert status == 0
    records = read(tmp_path / "evaluations.jsonl", EvaluationRecord)
    assert [record.protocol.strength for record in records] == [1, 4, 2.5]
    best = min(records, key=lambda record: record.metrics.fid)
    lines = out.splitlines()
    assert lines[1].split() == ["strength", "FD", "(digits)", "KID", "precision", "recall", "Inception", "Score"]
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2.5", "4"]
    assert sum("**" in line for line in lines[2:5]) == 1
    sentence = rf"Of the strengths 1, 2\.5 and 4, FD \(digits\) is smallest \(.+\) at {best.protocol.strength:g}"
    assert re.match(sentence, lines[5])
    assert "without guidance" in out
    table = (tmp_path / "strengths.md").read_text()
    assert table.count("\n| ") == 5
    assert f"**{best.metrics.fid:.4g}**" in table
    assert (tmp_path / "strengths.png").read_bytes().startswith(b"\x89PNG")
    # Each row is what the command gives for that strength alone.
    assert (
        evaluate(capsys, place / "run", "--strength", 4, "--samples", 60, "--device", "cpu", "--out", tmp_path)[0] == 0
    )
    (*_, alone) = read(tmp_path / "evaluations.jsonl", EvaluationRecord)
    assert alone.metrics == records[1].metrics
    assert alone.metrics != records[0].metrics


def test_several_steps_make_a_table_and_a_plot(capsys, tmp_path):
    options = ("cadence.epochs=1", "cadence.steps_per_epoch=12", "cadence.checkpoint_every=4", "cadence.keep_every=4")
    list(train(recipe("digits", settings=(*options, "cadence.grid_every=none")), out=tmp_path / "run", device="cpu"))
    arguments = (tmp_path / "run", "--samples", 60, "--device", "cpu")
    status, out, _ = evaluate(capsys, *arguments, "--step", 12, 4, 8)
    assert status == 0
    assert f"{tmp_path / 'run'}, 3 steps, ema weights" in out
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["4", "8", "12"]
    assert "guidance" not in out
    table = (tmp_path / "run" / "steps.md").read_text()
    assert table.count("\n| ") == 5
    assert (tmp_path / "run" / "steps.png").read_bytes().startswith(b"\x89PNG")
    # Each row is what the command gives for that step alone.
    assert evaluate(capsys, *arguments, "--step", 8)[0] == 0
    records = read(tmp_path / "run" / "evaluations.jsonl", EvaluationRecord)
    assert [record.step for record in records] == [12, 4, 8, 8]
    assert records[3].metrics == records[2].metrics != records[1].metrics
    # A missing one is named before anything is computed.
    status, _, err = evaluate(capsys, *arguments, "--step", 4, 5)
    assert status == 2
    assert "step is 5; the run has checkpoints of the steps 4, 8, 12;" in err
    assert len(read(tmp_path / "run" / "evaluations.jsonl", EvaluationRecord)) == 4


def test_one_strength_writes_no_table(capsys, place, tmp_path):
    status, out, _ = evaluate(
        capsys, place / "run", "--strength", 2, "--samples", 60, "--device", "cpu", "--out", tmp_path
    )
    assert status == 0
    assert "strength 2, ema weights" in out
    assert [path.name for path in tmp_path.iterdir()] == ["evaluations.jsonl"]
    assert "note: the generator was trained with strength 1 only, and not with 2" in out


@pytest.mark.parametrize(("samples", "few"), [(10, True), (300, False)])
def test_distances_of_few_samples_are_marked(capsys, place, tmp_path, samples, few):
    arguments = (place / "run", "--samples", samples, "--device", "cpu", "--out", tmp_path)
    status, out, _ = evaluate(capsys, *arguments)
    assert status == 0
    warning = "warning:  Distances of 10 samples say little; compare runs with at least 300, better thousands"
    assert (warning in out) is few
    (record,) = read(tmp_path / "evaluations.jsonl", EvaluationRecord)
    assert record.few_samples is record.protocol.few_samples is few
    assert ("say little" in describe_protocol(record.protocol)) is few


# Nearest training images


class Copier(Generator):
    """Returns given images, one after the other."""

    architecture = "copier"

    def __init__(self, values):
        super().__init__(MLPOptions(), noise_shape=(1,), sample_shape=(1, 8, 8), classes=10)
        self.values, self.count = to_model_range(values), 0

    def generate(self, z, labels, strength, style_ids):
        self.count += len(z)
        return self.values[self.count - len(z) : self.count]


def neighbors_of(capsys, monkeypatch, place, out, values, *arguments):
    """The record and the output of --neighbors for a generator that returns these images."""
    loaded = LoadedGenerator(Copier(values), tuple("0123456789"), "copier")
    monkeypatch.setattr(evaluate_module, "load_generator", lambda path, **options: loaded)
    options = ("--neighbors", "--samples", len(values), "--device", "cpu", "--out", out)
    status, text, err = evaluate(capsys, place / "run", *options, *arguments)
    assert status == 0, err
    return read(out / "evaluations.jsonl", NeighborsRecord)[-1], text


def test_copies_of_training_images_are_reported(capsys, monkeypatch, place, tmp_path):
    record, text = neighbors_of(capsys, monkeypatch, place, tmp_path, load("digits").values[:100])
    assert record.is_suspicious
    assert record.close == 100
    sentence = r"Samples may be copies: 100 of 100 samples \(100\.0%\) are as close to .+ below 1e-6\."
    assert re.search(sentence, text)
    assert "features: digits, sha256 " in text
    assert "the run was not trained on them" in text
    for name in ("neighbors.png", "neighbor_distances.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert f"written: {tmp_path / name}" in text
    assert (record.protocol.train, record.protocol.compared, record.protocol.held_out) == (1437, 1437, 360)


def test_new_images_are_not_reported_as_copies(capsys, monkeypatch, place, tmp_path):
    values = load("digits", split="test").values
    ids = hold_out_ids(values)
    record, text = neighbors_of(
        capsys, monkeypatch, place, tmp_path, values[ids], "--held-out", 180, "--extractor", "encoder:convnet"
    )
    assert not record.is_suspicious
    assert "No sign of copies: " in text
    assert (record.protocol.held_out, record.protocol.held_out_split) == (180, "test")
    _, text = neighbors_of(capsys, monkeypatch, place, tmp_path, values[ids], "--extractor", "encoder:pixels")
    assert "the run was trained on them" in text


def hold_out_ids(values):
    """The images of the test split that are not among the 180 held-out ones."""
    _, held_out = hold_out(load("digits"), load("digits", split="test"), 180)
    taken = {image.numpy().tobytes() for image in held_out.values}
    return [i for i, image in enumerate(values) if image.numpy().tobytes() not in taken]


def test_the_generator_of_a_run_is_compared(capsys, place, tmp_path):
    status, out, _ = evaluate(capsys, place / "run", "--neighbors", "--device", "cpu", "--out", tmp_path)
    assert status == 0
    assert "200 samples  360 held-out" in out
    assert out.startswith(f"{place / 'run'}, step 4, ema weights\n")


def write_images(directory, values):
    directory.mkdir(parents=True)
    for number, image in enumerate(values):
        Image.fromarray(image[0].numpy()).save(directory / f"{number:03}.png")


def test_a_folder_without_a_test_split_holds_images_out(capsys, monkeypatch, place, tmp_path):
    values = load("digits").values[:60]
    write_images(tmp_path / "f", values)
    arguments = ("--data", "folder", "--root", tmp_path / "f", "--extractor", "encoder:pixels")
    record, text = neighbors_of(capsys, monkeypatch, place, tmp_path, values, *arguments)
    assert (record.protocol.train, record.protocol.held_out, record.protocol.held_out_split) == (48, 12, "train")
    assert "12 images held out of the comparison; there is no test split, so the run saw them" in text
    assert record.close >= 48
    assert record.is_suspicious


def test_a_folder_with_a_test_split_uses_it(capsys, monkeypatch, place, tmp_path):
    values = load("digits").values[:100]
    write_images(tmp_path / "f" / "train", values[:60])
    write_images(tmp_path / "f" / "test", values[60:])
    arguments = ("--data", "folder", "--root", tmp_path / "f", "--extractor", "encoder:pixels")
    record, _ = neighbors_of(capsys, monkeypatch, place, tmp_path, values[:60], *arguments)
    assert (record.protocol.train, record.protocol.held_out, record.protocol.held_out_split) == (60, 40, "test")
    assert record.close == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strength", "1", "1"], r"strength has a value twice \(1 1\); must be one or more different numbers; .*"),
        (["--strength", "1", "-2"], "strength is -2.0; must be from 0 to 1e6; pass for example 2"),
        (["--strength", "1", "2", "--neighbors"], "strength has 2 values with --neighbors; must be one; .*"),
        (["--step", "6", "6"], r"step has a value twice \(6 6\); must be one or more different numbers; .*"),
        (["--step", "6", "12", "--neighbors"], "step has 2 values with --neighbors; must be one; .*"),
        (["--step", "6", "12", "--strength", "1", "2"], "step has 2 values, and --strength has 2; only one of .*"),
        (["--neighbors", "--split", "test"], "split is test with --neighbors; .*; leave --split out"),
        (["--neighbors", "--samples", "0"], "samples is 0; must be at least 2 .*"),
        (["--neighbors", "--held-out", "1"], "held-out is 1; must be an integer ≥ 2; pass for example 500"),
    ],
)
def test_mistakes_with_strengths_and_neighbors_are_one_line(capsys, place, arguments, message):
    status, out, err = evaluate(capsys, place / "run", *arguments, "--device", "cpu")
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)


def test_neighbors_refuse_several_processes_and_points(capsys, monkeypatch, place, tmp_path):
    with monkeypatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        status, _, err = evaluate(capsys, place / "run", "--neighbors", "--device", "cpu")
    assert (status, "there are 2 processes; --neighbors uses one; run it without torchrun" in err) == (2, True)
    settings = ("cadence.epochs=1", "cadence.steps_per_epoch=2", "cadence.grid_every=none", "batch.n=4")
    options = [each for one in settings for each in ("--set", one)]
    assert main(["train", "toy", *options, "--device", "cpu", "--out", str(tmp_path / "toy")]) == 0
    capsys.readouterr()
    status, _, err = evaluate(capsys, tmp_path / "toy", "--neighbors", "--device", "cpu")
    assert (status, "has points; --neighbors compares images; leave it out" in err) == (2, True)
