"""`truedrift diagnose` as a user runs it."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from truedrift.bias.diagnose import CALIBRATION, diagnose
from truedrift.cli.main import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(rows, 3, generator=generator) for rows in (5, 200))
    np.savez(folder / "features.npz", queries=x, references=y)
    save_file({"queries": x, "references": y}, folder / "features.safetensors")
    np.save(folder / "distances.npy", torch.cdist(x, y))
    np.save(folder / "weights.npy", (-torch.cdist(x, y) / 0.1).softmax(-1))
    np.savez(folder / "others.npz", images=x)
    np.savez(folder / "queries.npz", queries=x)
    np.savez(folder / "both.npz", weights=x, distances=x)
    np.savez(folder / "strange.npz", queries=x, references=y[:, :2])
    np.savez(folder / "deep.npz", queries=x[None], references=y)
    np.savez(folder / "nan.npz", queries=x, references=np.full((5, 3), np.nan))
    (folder / "broken.npz").write_bytes(b"no archive")
    (folder / "empty.npy").touch()
    (folder / "folder.npz").mkdir()
    return folder


def run(capsys, *arguments):
    status = main(["diagnose", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_one_screen(files, capsys):
    status, out, err = run(capsys, files / "features.npz", "--tau", 0.01, 0.1, 1, "--n", 16)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100
    for part in ("n_eff", "dominated", "bias standard", "bias ABC", "bias ABC-2", "of spread, of noise", "reliability"):
        assert part in out
    assert f"{CALIBRATION.false_green:.1%} of the greens" in out
    assert "τ = 0.01" in lines[3]


def test_json_is_what_the_library_says(files, capsys, tmp_path):
    out_file = tmp_path / "new" / "found.json"
    arguments = (files / "features.npz", "--tau", 0.1, "--n", 16, "--want", 0.02, "--json", "--out", out_file)
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    arrays = {name: torch.from_numpy(value) for name, value in np.load(files / "features.npz").items()}
    assert json.loads(out) == json.loads(diagnose(**arrays, tau=(0.1,), n=16, wanted=0.02).to_json())
    assert json.loads(out_file.read_text()) == json.loads(out)


def test_the_three_formats_and_kinds(files, capsys):
    for name in ("features.npz", "features.safetensors"):
        status, out, _ = run(capsys, files / name, "--tau", 0.1, "--n", 8)
        assert status == 0
        assert out.splitlines()[1] == "5 queries, 200 references, D = 3, laplace kernel, n = 8, seed 0"
    status, out, _ = run(capsys, files / "distances.npy", "--array", "distances", "--tau", 0.1, "--n", 8)
    assert status == 0
    assert "distances" in out
    status, out, _ = run(capsys, files / "weights.npy", "--array", "weights")
    assert status == 0
    assert "5 rows of n = 200 weights" in out
    assert "bias ABC" not in out


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "missing.npz",
            ["--tau", "1"],
            "does not exist; must be a file that ends in one of .npy, .npz, .safetensors; ",
        ),
        ("folder.npz", ["--tau", "1"], "is a directory; must be a file that ends in "),
        ("empty.npy", ["--tau", "1"], "is empty; must hold one or more arrays; "),
        ("broken.npz", ["--tau", "1"], "cannot be read as .npz (File is not a zip file); must be "),
        ("nan.npz", ["--tau", "1"], "15 entries that are NaN or infinite; all entries must be finite; "),
        ("others.npz", ["--tau", "1"], "holds images; must hold weights, or distances, or queries and "),
        ("both.npz", ["--tau", "1"], "the input has distances, weights; must have weights, or distances, or "),
        ("queries.npz", [], "the input has queries but no references; must have weights, or distances, or "),
        ("strange.npz", ["--tau", "1"], "queries has D = 3 and references has D = 2; "),
        ("deep.npz", ["--tau", "1"], "queries has shape [1, 5, 3]; must have two dimensions"),
        ("features.npz", [], "holds queries and references, and --tau is missing; tau must be one or more positive"),
        ("features.npz", ["--tau", "0"], "tau is 0.0; must be a positive finite number"),
        ("features.npz", ["--tau", "1", "--n", "0"], "n is 0; must be an integer from 1"),
        ("features.npz", ["--tau", "1", "--want", "-1"], "wanted is -1.0; must be a positive fraction"),
        ("features.npz", ["--tau", "1", "--seed", "-1"], "seed is -1; must be an integer from 0"),
        ("features.npz", ["--tau", "1", "--array", "weights"], "--array weights was given, but "),
        ("features.npz", ["--tau", "1", "--out", "FILE/below"], "cannot be written"),
        ("features.npz", ["--tau", "1", "--out", "."], "is a directory; must be a file; "),
        ("distances.npy", ["--tau", "1"], "holds one array without a name; must be weights or distances; "),
        ("distances.npy", ["--array", "weights"], "5 of 5 rows of weights have a negative entry or do not sum to 1; "),
    ],
)
def test_every_mistake_is_one_line_and_status_2(files, capsys, tmp_path, name, options, message):
    (tmp_path / "FILE").touch()
    options = [str(tmp_path / each) if each.startswith("FILE") else each for each in options]
    status, out, err = run(capsys, files / name, *options)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("truedrift: error: ")
    assert message in line


def test_a_bad_file_in_a_process_of_its_own(files):
    command = [sys.executable, "-m", "truedrift", "diagnose", str(files / "broken.npz"), "--tau", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"truedrift: error: .*; must be .*; .*\n", done.stderr)
