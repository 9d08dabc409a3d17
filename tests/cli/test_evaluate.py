"""`truedrift evaluate` as a user runs it."""

import os
import re
import subprocess
import sys

import pytest

from truedrift.cli import main
from truedrift.evaluation import EvaluationRecord
from truedrift.records import read
from truedrift.training import load_generator

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
        (["RUN", "--strength", "-1"], "strength is -1.0; must be from 0 to 1e6; pass 1 to 4, as in training"),
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
