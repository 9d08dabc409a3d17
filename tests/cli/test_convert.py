"""`truedrift convert` as a user runs it: a synthetic published checkpoint in, a folder to sample from out."""

import os

import pytest
import torch
from oracles.generator_zoo import perturb
from safetensors.torch import save_file

from truedrift.cli.main import main
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.pretrained import from_pretrained
from truedrift.generators.sampling import sample

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
    said = capsys.readouterr()
    return status, said.out, said.err


def images(generator):
    return sample(generator, LABELS, seed=4, strength=1.5)


def test_a_published_checkpoint_becomes_a_folder_to_sample_from(tmp_path, capsys, model, average):
    file = tmp_path / "drift.pt"
    ema = dict(average.named_parameters())  # as an EMA keeps them: no position cache
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
def test_the_weights_are_the_users_to_choose(tmp_path, capsys, model, average, choice):
    file = tmp_path / "drift.safetensors"
    ema = {f"ema_model.module.{name}": tensor for name, tensor in average.to_published().items()}
    save_file({**{f"state_dict.{name}": tensor for name, tensor in model.to_published().items()}, **ema}, file)
    out = tmp_path / "deep" / "out"
    status, said, err = run(capsys, file, "--weights", choice, "--out", out)
    assert (status, err) == (0, "")
    assert f"weights: {'EMA, from ema_model.module' if choice == 'ema' else 'model, from state_dict'}" in said
    assert torch.equal(images(from_pretrained(out)), images(average if choice == "ema" else model))


def test_a_bare_state_dict_and_an_image_size(tmp_path, capsys, model):
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    (tmp_path / "bare").mkdir()  # an empty folder is taken
    status, said, _ = run(capsys, tmp_path / "bare.safetensors")
    assert status == 0
    assert "images 3 × 32 × 32 (assumed, not in the checkpoint: see --image-size)" in said
    assert "weights: model, from the file itself" in said
    status, said, _ = run(capsys, tmp_path / "bare.safetensors", "--image-size", 16, "--out", tmp_path / "sized")
    assert status == 0
    assert "images 3 × 16 × 16\n" in said
    assert torch.equal(images(from_pretrained(tmp_path / "sized")), images(model))


def test_style_draws_are_the_users_to_tell(tmp_path, capsys):
    options = DriftDiTOptions(width=24, depth=1, heads=2, registers=1, style_draws=8, style_entries=5)
    model = perturb(DriftDiT(options, sample_shape=(3, 16, 16), classes=6), 3)
    save_file(model.to_published(), tmp_path / "eight.safetensors")
    status, said, _ = run(capsys, tmp_path / "eight.safetensors", "--style-draws", 8)
    assert status == 0
    assert "\n8 style draws\n" in said
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
    status, said, _ = run(capsys, tmp_path / "a.safetensors")
    assert status == 0
    assert "\n0 style draws\n" in said


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


def test_another_network_is_told_and_nothing_is_left(tmp_path, capsys):
    save_file({"model.conv.weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    status, out, err = run(capsys, tmp_path / "other.safetensors")
    assert (status, out) == (2, "")
    assert "'patch_embed.proj.weight' is missing among 1 tensors" in err
    assert names(tmp_path) == ["other.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.pt"], "does not exist"),
        (["full.pt"], "is not empty; must be a new or empty folder"),
        (["full.pt", "--out", "full.pt"], "is a file; must be a new or empty folder"),
        (["full.pt", "--out", "new", "--image-size", "0"], "image_size is 0; "),
        (["full.pt", "--out", "new", "--style-draws", "-1"], "style_draws is -1; "),
        (["full.pt", "--out", "pipe"], "is a file; must be a new or empty folder"),
        (["full.pt", "--out", "full.pt/new"], "cannot be written"),
        (["full.pt", "--weights", "best"], "best"),
        (["text.txt"], "ends in '.txt'"),
        (["noextension"], "has no extension"),
    ],
)
def test_mistakes_are_found_before_any_work(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("truedrift.cli.convert.convert_pickle", lambda *_: pytest.fail("work was begun"))
    torch.save({"w": torch.zeros(1)}, "full.pt")
    (tmp_path / "full").mkdir()
    os.mkfifo("pipe")
    for file in ("full/something", "text.txt", "noextension"):
        (tmp_path / file).write_text("x")
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1 or "--weights" in arguments  # tyro explains choices in several lines
    assert names(tmp_path) == ["full", "full.pt", "noextension", "pipe", "text.txt"]
