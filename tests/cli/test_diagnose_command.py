"""`truedrift diagnose` as a user runs it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from truedrift.bias import CALIBRATION, diagnose
from truedrift.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(rows, 3, generator=generator) for rows in (5, 200))
    np.savez(folder / "features.npz", queries=x, references=y)
    save_file({"queries": x, "references": y}, folder / "features.safetensors")
    np.save(folder / "distances.npy", torch.cdist(x, y))
    np.save(folder / "weights.npy", (-torch.cdist(x, y) / 0.1).softmax(-1))
    np.save(folder / "logits.npy", -torch.cdist(x, y) / 0.1)
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
    output = capsys.readouterr()
    return status, output.out, output.err


def test_the_text_fits_on_one_screen(files, capsys):
    status, out, err = run(capsys, files / "features.npz", "--tau", 0.01, 0.1, 1, "--n", 16)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 34
    assert max(map(len, lines)) <= 100
    for part in ("n_eff", "dominated", "bias standard", "bias ABC", "bias ABC-2", "of spread, of noise", "confidence"):
        assert part in out
    assert f"High confidence was wrong by more than a factor of 2 in {CALIBRATION.false_high:.1%}" in out
    assert "τ = 0.01" in lines[3]


def test_json_equals_that_of_the_library(files, capsys, tmp_path):
    out_file = tmp_path / "new" / "found.json"
    arguments = (files / "features.npz", "--tau", 0.1, "--n", 16, "--want", 0.02, "--json", "--out", out_file)
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    arrays = {name: torch.from_numpy(value) for name, value in np.load(files / "features.npz").items()}
    assert json.loads(out) == json.loads(diagnose(**arrays, tau=(0.1,), n=16, wanted=0.02).to_json())
    assert json.loads(out_file.read_text()) == json.loads(out)


def test_out_may_be_a_device(files, capsys):
    """An atomic write would replace the device by a file."""
    status, _, err = run(capsys, files / "features.npz", "--tau", 0.1, "--n", 16, "--out", "/dev/null")
    assert (status, err) == (0, "")
    assert Path("/dev/null").is_char_device()


def test_the_push_follows_the_number_of_generated_samples(files, capsys):
    arguments = (files / "features.npz", "--tau", 0.05, 0.1, 1, "--n", 16, "--generated", 5)
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 46
    assert max(map(len, lines)) <= 100
    at = next(k for k, line in enumerate(lines) if line.strip() == "push at q = p, g = 5")
    labels = [line[:26].strip() for line in lines[at + 1 : at + 9]]
    standard_and_abc = [name for each in ("standard", "ABC") for name in (each, "of spread, of noise", "outward")]
    assert labels == [*standard_and_abc, "matched, windows of 4", "noise of V / unmatched"]
    assert lines[at + 7].split()[-3:] == ["0", "0", "0"]
    arrays = {name: torch.from_numpy(value) for name, value in np.load(files / "features.npz").items()}
    found = diagnose(**arrays, tau=(0.05, 0.1, 1.0), n=16, generated=5)
    assert [float(cell) for cell in lines[at + 1].split()[1:]] == pytest.approx(
        [each.pushes[0].norm for each in found.temperatures], rel=5e-3
    )
    assert found.push_advice is not None
    assert found.advice in " ".join(lines)
    _, written, _ = run(capsys, *arguments, "--json")
    assert json.loads(written) == json.loads(found.to_json())


def test_without_generated_samples_there_is_no_push(files, capsys):
    _, out, _ = run(capsys, files / "features.npz", "--tau", 0.1, "--n", 16)
    assert "push" not in out
    assert "matched" not in out


def test_help_has_an_example_with_generated_samples(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert "truedrift diagnose features.npz --tau 0.05 --n 64 --generated 8" in out


def test_the_worked_example_of_the_documentation(capsys, tmp_path, monkeypatch):
    """The commands of the section run, and print its table. Numbers may differ by 2 % between machines."""
    text = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
    block = re.search(r"## Push.*?```console\n(.*?)```", text, re.DOTALL).group(1)
    script, command, shown = re.fullmatch(
        r'\$ python -c "\n(.*?)"\n\$ truedrift diagnose (.*?)\n(.*)', block, re.DOTALL
    ).groups()
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    status, out, _ = run(capsys, *command.split())
    assert status == 0
    printed = out[out.index("push at q = p") :].splitlines()
    count = 0
    for line in shown.strip("…\n").splitlines():
        if line.strip() in ("", "…"):
            continue
        number = r"-?[0-9]+\.?[0-9]*(?:e-?[0-9]+)?"
        found = next(each for each in printed if re.sub(number, "#", each).split() == re.sub(number, "#", line).split())
        printed.remove(found)
        values, expected = ([float(each) for each in re.findall(number, one)] for one in (found, line))
        assert values == pytest.approx(expected, rel=0.02)
        count += 1
    assert count >= 9


def test_the_three_file_formats_and_kinds_of_input(files, capsys):
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


FILES = "must be a file that ends in .npy, .npz, .safetensors"
SOURCES = "weights, or distances, or queries and references"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("missing.npz", ["--tau", "1"], f"'FILES/missing.npz' does not exist; {FILES}; check the path"),
        ("folder.npz", ["--tau", "1"], f"'FILES/folder.npz' is a directory; {FILES}; pass a file"),
        ("empty.npy", ["--tau", "1"], "'FILES/empty.npy' is empty; must hold one or more arrays; save it again"),
        (
            "broken.npz",
            ["--tau", "1"],
            "'FILES/broken.npz' cannot be read as .npz (File is not a zip file); must be a complete file without "
            "pickled objects; save it again with numpy.save, numpy.savez or safetensors",
        ),
        (
            "nan.npz",
            ["--tau", "1"],
            "references in 'FILES/nan.npz' has 15 entries that are NaN or infinite; all entries must be finite; "
            "remove those rows or fix their source",
        ),
        (
            "others.npz",
            ["--tau", "1"],
            f"'FILES/others.npz' holds images; must hold {SOURCES}; save the arrays under these names",
        ),
        ("both.npz", ["--tau", "1"], f"the input has distances, weights; must have {SOURCES}; pass one of the three"),
        ("queries.npz", [], f"the input has queries; must have {SOURCES}; pass one of the three"),
        (
            "strange.npz",
            ["--tau", "1"],
            "queries has D = 3 and references has D = 2; their last dimensions must be equal; "
            "compute both with the same encoder",
        ),
        (
            "deep.npz",
            ["--tau", "1"],
            "queries has shape [1, 5, 3]; must have two dimensions, with 2 references or more; "
            "flatten the leading dimensions, or pass more references",
        ),
        (
            "features.npz",
            [],
            "'FILES/features.npz' holds queries and references, and --tau is missing; "
            "tau must be one or more positive numbers; add for example --tau 0.05",
        ),
        (
            "features.npz",
            ["--tau", "0"],
            "tau is 0.0; must be a positive finite number, at least 1e-30; "
            "use the scale of the distances, for example a tenth of their median",
        ),
        (
            "features.npz",
            ["--tau", "1", "--n", "0"],
            "n is 0; must be an integer from 1 to 1000000; pass the number of references per centroid",
        ),
        (
            "features.npz",
            ["--tau", "1", "--want", "-1"],
            "wanted is -1.0; must be a positive fraction of the spread; pass for example 0.01",
        ),
        (
            "features.npz",
            ["--tau", "1", "--seed", "-1"],
            "seed is -1; must be an integer from 0 to 9223372036854775807; pass for example 0",
        ),
        (
            "features.npz",
            ["--tau", "1", "--array", "weights"],
            "--array weights was given, but the arrays of 'FILES/features.npz' have names; --array is for .npy files; "
            "leave it out",
        ),
        (
            "features.npz",
            ["--tau", "1", "--out", "FILES/empty.npy/below"],
            "the directory 'FILES/empty.npy' cannot be written (is a file); "
            "must be a directory that exists or can be made; name another one",
        ),
        ("features.npz", ["--tau", "1", "--out", "."], "--out '.' is a directory; must be a file; pass a file in it"),
        (
            "features.npz",
            ["--tau", "1", "--generated", "2"],
            "generated is 2; must be an integer from 3 to 1000000, for 2 negatives or more; "
            "pass the number of generated samples per class of a batch",
        ),
        (
            "features.npz",
            ["--tau", "1", "--n", "1", "--generated", "8"],
            "n is 1; must be at least 2 with generated; use more positives",
        ),
        (
            "weights.npy",
            ["--array", "weights", "--generated", "8"],
            "generated is 8 with weights, which do not determine the push of the field; "
            "needs distances, or queries and references; pass these, or leave it out",
        ),
        (
            "distances.npy",
            ["--tau", "1"],
            "'FILES/distances.npy' holds one array without a name; must be weights or distances; "
            "add --array weights or --array distances",
        ),
        (
            "distances.npy",
            ["--array", "weights"],
            "5 of 5 rows of weights have a negative entry or do not sum to 1; "
            "must be weights [..., n] that sum to 1 within 0.001; apply a softmax first: "
            "weights = logits.softmax(-1), or divide kernel values by their sum",
        ),
        (
            "logits.npy",
            ["--array", "weights"],
            "5 of 5 rows of weights have a negative entry or do not sum to 1; "
            "must be weights [..., n] that sum to 1 within 0.001; apply a softmax first: weights = logits.softmax(-1)",
        ),
    ],
)
def test_mistakes_are_one_line_and_status_2(files, capsys, name, options, message):
    options = [each.replace("FILES", str(files)) for each in options]
    status, out, err = run(capsys, files / name, *options)
    assert (status, out) == (2, "")
    assert err == f"truedrift: error: {message}\n".replace("FILES", str(files))


def test_an_unknown_kernel_names_the_known_ones(files, capsys):
    status, out, err = run(capsys, files / "features.npz", "--kernel", "cauchy")
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())
    assert (status, out) == (2, "")
    assert "invalid choice 'cauchy' for argument '--kernel'. Expected one of ('laplace', 'gaussian')." in text
    assert "truedrift diagnose --help" in text


def test_a_bad_file_in_a_separate_process(files):
    command = [sys.executable, "-m", "truedrift", "diagnose", str(files / "broken.npz"), "--tau", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"truedrift: error: .*; must be .*; .*\n", done.stderr)
