"""`truedrift convert` as a user runs it: a synthetic published checkpoint in, a folder to sample from out."""

import os
import re
import time

import pytest
import torch
from oracles.generator_zoo import perturb
from safetensors.torch import save_file

from truedrift.cli import main
from truedrift.generators import DriftDiT, DriftDiTOptions, from_pretrained, sample

OPTIONS = DriftDiTOptions(width=24, depth=2, heads=2, patch=4, registers=4)
LABELS = torch.arange(12) % 6


def network(seed):
    return perturb(DriftDiT(OPTIONS, sample_shape=(3, 16, 16), classes=6), seed)


@pytest.fixture(scope="module")
def model():
    return network(1)


@pytest.fixture(scope="module")
def average():
    return network(2)


def run(capsys, *arguments):
    status = main(["convert", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def images(generator):
    return sample(generator, LABELS, seed=4, strength=1.5)


def test_a_published_checkpoint_becomes_a_folder_to_sample_from(tmp_path, capsys, model, average):
    file = tmp_path / "drift.pt"
    ema = dict(average.named_parameters())  # an EMA has no position cache
    torch.save({"model": model.to_published(), "ema": {"shadow": ema}, "step": 100, "epoch": 3, "best": 12.5}, file)
    status, out, err = run(capsys, file)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"DriftDiT 24 × 2, 2 heads, {sum(p.numel() for p in model.parameters()):,} parameters",
        "6 classes, images 3 × 16 × 16",
        "32 style draws (assumed, not in any checkpoint: see --style-draws)",
        "weights: EMA, from ema.shadow",
        f"written: {tmp_path / 'drift'}",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drift", "drift.pt"]
    assert sorted(path.name for path in (tmp_path / "drift").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    back = from_pretrained(tmp_path / "drift")
    assert torch.equal(images(back), images(average))
    assert not torch.equal(images(back), images(model))


@pytest.mark.parametrize("choice", ["model", "ema"])
def test_the_user_chooses_the_weights(tmp_path, capsys, model, average, choice):
    file = tmp_path / "drift.safetensors"
    ema = {f"ema_model.module.{name}": tensor for name, tensor in average.to_published().items()}
    save_file({**{f"state_dict.{name}": tensor for name, tensor in model.to_published().items()}, **ema}, file)
    folder = tmp_path / "deep" / "out"
    status, out, err = run(capsys, file, "--weights", choice, "--out", folder)
    assert (status, err) == (0, "")
    assert f"weights: {'EMA, from ema_model.module' if choice == 'ema' else 'model, from state_dict'}" in out
    assert torch.equal(images(from_pretrained(folder)), images(average if choice == "ema" else model))


def test_a_bare_state_dict_and_an_image_size(tmp_path, capsys, model):
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    (tmp_path / "bare").mkdir()  # an empty folder is allowed
    status, out, _ = run(capsys, tmp_path / "bare.safetensors")
    assert status == 0
    assert "images 3 × 32 × 32 (assumed, not in the checkpoint: see --image-size)" in out
    assert "weights: model, from the file itself" in out
    status, out, _ = run(capsys, tmp_path / "bare.safetensors", "--image-size", 16, "--out", tmp_path / "sized")
    assert status == 0
    assert "images 3 × 16 × 16\n" in out
    assert torch.equal(images(from_pretrained(tmp_path / "sized")), images(model))


def test_the_user_gives_the_style_draws(tmp_path, capsys):
    options = DriftDiTOptions(width=24, depth=1, heads=2, registers=1, style_draws=8, style_entries=5)
    model = perturb(DriftDiT(options, sample_shape=(3, 16, 16), classes=6), 3)
    save_file(model.to_published(), tmp_path / "eight.safetensors")
    status, out, _ = run(capsys, tmp_path / "eight.safetensors", "--style-draws", 8)
    assert status == 0
    assert "\n8 style draws\n" in out
    assert torch.equal(images(from_pretrained(tmp_path / "eight")), images(model))
    assert run(capsys, tmp_path / "eight.safetensors", "--out", tmp_path / "assumed")[0] == 0
    assert not torch.equal(images(from_pretrained(tmp_path / "assumed")), images(model))
    status, _, err = run(capsys, tmp_path / "eight.safetensors", "--out", tmp_path / "none", "--style-draws", 0)
    assert status == 2
    assert "style_draws is 0 and style_entries is 5; " in err
    assert not (tmp_path / "none").exists()


def test_without_styles_nothing_is_assumed(tmp_path, capsys):
    options = DriftDiTOptions(width=24, depth=1, heads=2, registers=1, style_draws=0, style_entries=0)
    save_file(DriftDiT(options, sample_shape=(3, 16, 16), classes=6).to_published(), tmp_path / "a.safetensors")
    status, out, _ = run(capsys, tmp_path / "a.safetensors")
    assert status == 0
    assert "\n0 style draws\n" in out


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_weights_have_the_usual_permissions(tmp_path, capsys, model, mask, mode):
    save_file(model.to_published(), tmp_path / "a.safetensors")
    before = os.umask(mask)
    try:
        assert run(capsys, tmp_path / "a.safetensors")[0] == 0
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "model.safetensors").stat().st_mode & 0o777 == mode


class Evil:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_malicious_pickle_leaves_no_trace(tmp_path, capsys, model):
    torch.save({"model": model.to_published(), "args": Evil(tmp_path / "trace")}, tmp_path / "evil.pt")
    status, out, err = run(capsys, tmp_path / "evil.pt")
    assert (status, out) == (2, "")
    assert "cannot be read as weights (it wants to call" in err
    assert len(err.splitlines()) == 1
    assert names(tmp_path) == ["evil.pt"]


def test_another_network_is_refused_and_nothing_is_left(tmp_path, capsys):
    save_file({"model.conv.weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    status, out, err = run(capsys, tmp_path / "other.safetensors")
    assert (status, out) == (2, "")
    assert "'patch_embed.proj.weight' is missing among 1 tensors" in err
    assert names(tmp_path) == ["other.safetensors"]


def test_what_a_killed_command_left_is_removed(tmp_path, capsys):
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / ".truedrift-left" / "saved").mkdir(parents=True)
    os.utime(tmp_path / ".truedrift-left", (time.time() - 300,) * 2)
    assert run(capsys, tmp_path / "other.safetensors")[0] == 2
    assert names(tmp_path) == ["other.safetensors"]


FOLDER = "must be a new or empty folder; pass another one with --out"
ENDINGS = "must be a file that ends in .pt, .pth, .bin, .ckpt, .pkl, .safetensors"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.pt"], f"'missing.pt' does not exist; {ENDINGS}; check the path"),
        (["full.pt"], f"'full' is not empty; {FOLDER}"),
        (["full.pt", "--out", "full.pt"], f"'full.pt' is a file; {FOLDER}"),
        (["full.pt", "--out", "pipe"], f"'pipe' is a file; {FOLDER}"),
        (
            ["full.pt", "--out", "new", "--image-size", "0"],
            "image_size is 0; must be an integer ≥ 1; pass for example 32",
        ),
        (
            ["full.pt", "--out", "new", "--style-draws", "-1"],
            "style_draws is -1; must be an integer ≥ 0; pass for example 32",
        ),
        (["full.pt", "--out", "full.pt/new"], r"the directory '.*/full.pt' cannot be written \(is a file\); .+; .+"),
        (["text.txt"], f"'text.txt' ends in '.txt'; {ENDINGS}; pass such a file"),
        (["noextension"], f"'noextension' has no extension; {ENDINGS}; pass such a file"),
    ],
)
def test_mistakes_are_found_before_any_work(folder, capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert re.fullmatch(f"truedrift: error: {message}\n", err)
    assert names(folder) == ["full", "full.pt", "noextension", "pipe", "text.txt"]


def test_an_unknown_choice_of_weights_is_explained(folder, capsys):
    status, out, err = run(capsys, "full.pt", "--weights", "best")
    assert (status, out) == (2, "")
    assert re.search(r"'best'.*--weights.*'auto'.*'ema'.*'model'.*truedrift convert --help", err, re.DOTALL)
    assert names(folder) == ["full", "full.pt", "noextension", "pipe", "text.txt"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with unusable files, in which no checkpoint may be read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("truedrift.generators.pretrained.convert_pickle", lambda *_: pytest.fail("work was begun"))
    torch.save({"w": torch.zeros(1)}, "full.pt")
    (tmp_path / "full").mkdir()
    os.mkfifo("pipe")
    for file in ("full/something", "text.txt", "noextension"):
        (tmp_path / file).write_text("x")
    return tmp_path
