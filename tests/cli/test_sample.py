"""`truedrift sample` as a user runs it: a grid, a folder, an .npz file; the same sample in any batch."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from truedrift.cli import main
from truedrift.data import to_uint8
from truedrift.generators import DriftDiT, DriftDiTOptions, pretrained_names, sample
from truedrift.recipes import recipe
from truedrift.training import Parts, load_generator, train

SMALL = (
    "generator.width=32",
    "generator.depth=1",
    "batch.n=4",
    "optimizer.warmup_steps=1",
    "optimizer.ema=0.9",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=12",
    "cadence.grid_every=none",
)


def train_small(out, name="digits", **options):
    list(train(recipe(name, settings=SMALL), out=out, device="cpu", **options))
    return out


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return train_small(tmp_path_factory.mktemp("digits") / "run")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return train_small(tmp_path_factory.mktemp("toy") / "run", "toy")


def run(capsys, *arguments):
    status = main(["sample", *map(str, arguments), "--device", "cpu"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def arrays(capsys, path, out, *arguments):
    status, printed, err = run(capsys, path, "--form", "npz", "--out", out, *arguments)
    assert (status, err) == (0, "")
    assert printed.splitlines()[-1] == f"written: {out}"
    with np.load(out, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_a_grid_has_one_row_per_class(capsys, digits, tmp_path):
    status, out, err = run(capsys, digits, "--count", 40, "--out", tmp_path / "deep" / "grid.png")
    assert (status, err) == (0, "")
    assert out == (
        f"40 samples of {digits}, step 12, ema weights, strength 1, seed 0\nwritten: {tmp_path / 'deep' / 'grid.png'}\n"
    )
    values = to_uint8(sample(load_generator(digits).generator, torch.arange(10).repeat_interleave(4), seed=0))
    with Image.open(tmp_path / "deep" / "grid.png") as image:
        assert image.size == (4 * 34 + 2, 10 * 34 + 2)
        pixels = torch.from_numpy(np.array(image))
    for number in (0, 6, 39):
        top, left = 2 + number // 4 * 34, 2 + number % 4 * 34
        assert torch.equal(pixels[top : top + 32 : 4, left : left + 32 : 4, 0], values[number, 0])


def test_the_default_output_is_in_the_run_directory(capsys, digits):
    for arguments, name in (
        ((), "sample-100-seed0-strength1.png"),
        (("--seed", 4, "--strength", 2.5, "--classes", 3, 7), "sample-100-seed4-strength2.5-3-7.png"),
        (("--form", "npz", "--count", 30), "sample-30-seed0-strength1.npz"),
        (("--weights", "model"), "sample-100-seed0-strength1-model-weights.png"),
        (("--classes", *range(10), *range(10), *range(10), *range(5)), r"sample-70-seed0-strength1-classes-\w{8}.png"),
    ):
        status, out, _ = run(capsys, digits, *arguments)
        assert status == 0
        assert re.search(rf"written: {re.escape(str(digits))}/{name}$", out)
    assert not [path for path in digits.iterdir() if path.name.startswith(".")]
    # The name has the number of samples that the grid has, and a strength without guidance is noted.
    status, out, _ = run(capsys, digits, "--count", 29, "--strength", 1)
    assert "\nThe run was trained without guidance (batch.unconditional is 0)" in out
    assert out.endswith("sample-20-seed0-strength1.png\n")
    assert "guidance" not in run(capsys, digits)[1]


def test_an_average_is_selected_by_its_decay(capsys, tmp_path):
    config = recipe("digits", settings=(*SMALL, "optimizer.more_ema=[0.5]"))
    list(train(config, out=tmp_path / "run", device="cpu"))
    found = arrays(capsys, tmp_path / "run", tmp_path / "half.npz", "--ema", 0.5, "--count", 10)["images"]
    expected = to_uint8(sample(load_generator(tmp_path / "run", ema=0.5).generator, torch.arange(10), seed=0))
    assert np.array_equal(found[..., 0], expected[:, 0].numpy())
    main_average = arrays(capsys, tmp_path / "run", tmp_path / "main.npz", "--count", 10)["images"]
    assert not np.array_equal(found, main_average)
    named = arrays(capsys, tmp_path / "run", tmp_path / "named.npz", "--ema", 0.9, "--count", 10)["images"]
    assert np.array_equal(named, main_average)
    _, out, _ = run(capsys, tmp_path / "run", "--ema", 0.5)
    assert out.endswith("sample-100-seed0-strength1-ema0.5.png\n")
    step = load_generator(tmp_path / "run").step
    _, out, _ = run(capsys, tmp_path / "run", "--step", step)
    assert out.endswith(f"sample-100-seed0-strength1-step{step}.png\n")
    status, _, err = run(capsys, tmp_path / "run", "--ema", 0.7)
    assert (status, err) == (
        2,
        "truedrift: error: ema is 0.7; the run has averages with decay 0.9, 0.5; use one of these\n",
    )


def test_a_folder_has_one_png_per_sample(capsys, digits, tmp_path):
    status, _, _ = run(
        capsys, digits, "--form", "folder", "--count", 6, "--classes", 3, 7, "--out", tmp_path / "images"
    )
    assert status == 0
    names = sorted(str(path.relative_to(tmp_path / "images")) for path in (tmp_path / "images").rglob("*.png"))
    assert names == [f"{'3' if number < 3 else '7'}/{number:06d}.png" for number in range(6)]
    expected = arrays(capsys, digits, tmp_path / "a.npz", "--count", 6, "--classes", 3, 7)["images"]
    for number, name in enumerate(names):
        with Image.open(tmp_path / "images" / name) as image:
            assert image.mode == "RGB"
            assert np.array_equal(np.asarray(image)[..., :1], expected[number])


def test_an_npz_file_has_bytes_and_labels(capsys, digits, tmp_path):
    found = arrays(capsys, digits, tmp_path / "noextension", "--count", 25)
    assert found["images"].shape == (25, 8, 8, 1)
    assert found["images"].dtype == np.uint8
    assert found["images"].std() > 20
    assert found["labels"].tolist() == [label for label in range(10) for _ in range(3 if label < 5 else 2)]
    assert [path.name for path in tmp_path.iterdir()] == ["noextension"]


@pytest.mark.parametrize("count", [1, 7, 10, 15, 23])
def test_classes_have_equal_shares(capsys, digits, tmp_path, count):
    labels = arrays(capsys, digits, tmp_path / "a.npz", "--count", count)["labels"].tolist()
    assert labels == sorted(number % 10 for number in range(count))
    chosen = arrays(capsys, digits, tmp_path / "b.npz", "--count", count, "--classes", 8, 2, 5)["labels"].tolist()
    assert [chosen.count(label) for label in (8, 2, 5)] == [-(-(count - turn) // 3) for turn in range(3)]


@pytest.mark.parametrize(("count", "size"), [(15, (36, 342)), (29, (70, 342)), (4, (36, 138))])
def test_rows_of_a_grid_have_equal_length(capsys, digits, tmp_path, count, size):
    status, out, _ = run(capsys, digits, "--count", count, "--out", tmp_path / "a.png")
    assert status == 0
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == size
    drawn = count - count % 10 if count > 10 else count
    assert (f"a grid has equal rows: {drawn} of {count}\n" in out) == (drawn < count)


@pytest.mark.parametrize("form", ["grid", "npz", "folder"])
def test_only_regular_files_are_replaced(capsys, digits, tmp_path, form):
    os.mkfifo(tmp_path / "pipe")
    status, out, err = run(capsys, digits, "--form", form, "--out", tmp_path / "pipe")
    assert (status, out) == (2, "")
    replaced = "'.*pipe' is not a regular file; must be a new file or a file to replace; choose another path"
    assert re.fullmatch(f"truedrift: error: {DIRECTORY if form == 'folder' else replaced}\n", err)
    assert [(path.name, path.is_fifo()) for path in tmp_path.iterdir()] == [("pipe", True)]


def test_a_folder_with_old_samples_is_refused(capsys, digits, tmp_path):
    (tmp_path / "images").mkdir()
    options = ("--form", "folder", "--out", tmp_path / "images", "--count")
    assert run(capsys, digits, *options, 3)[0] == 0
    status, out, err = run(capsys, digits, *options, 2)
    assert (status, out) == (2, "")
    message = "'.*images' is not empty; must be a new or empty folder; pass another one with --out"
    assert re.fullmatch(f"truedrift: error: {message}\n", err)
    assert len(list((tmp_path / "images").rglob("*.png"))) == 3


def test_points_are_written_as_arrays_and_scatter_plots(capsys, toy, tmp_path):
    found = arrays(capsys, toy, tmp_path / "a.npz", "--count", 16)
    assert found["points"].shape == (16, 2)
    assert found["points"].dtype == np.float32
    status, _, _ = run(capsys, toy, "--count", 64, "--out", tmp_path / "map.png")
    assert status == 0
    with Image.open(tmp_path / "map.png") as image:
        assert image.size == (480, 480)
    status, _, err = run(capsys, toy, "--form", "folder", "--out", tmp_path / "folder")
    assert (status, err) == (
        2,
        "truedrift: error: the samples are points; --form folder is for images; pass --form npz\n",
    )


def test_classes_by_name_and_by_number(capsys, toy, tmp_path):
    by_name = arrays(capsys, toy, tmp_path / "a.npz", "--count", 6, "--classes", "45°", "315°")
    by_number = arrays(capsys, toy, tmp_path / "b.npz", "--count", 6, "--classes", "1", "7")
    assert by_name["labels"].tolist() == [1, 1, 1, 7, 7, 7]
    assert all(np.array_equal(by_name[name], by_number[name]) for name in by_name)
    other = arrays(capsys, toy, tmp_path / "c.npz", "--count", 6, "--classes", "1", "6")
    assert np.array_equal(other["points"][:3], by_name["points"][:3])
    assert not np.isclose(other["points"][3:], by_name["points"][3:]).any()


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_samples_do_not_depend_on_the_batch(capsys, digits, toy, tmp_path, batch):
    images = arrays(capsys, digits, tmp_path / "a.npz", "--count", 100)["images"].astype(int)
    others = arrays(capsys, digits, tmp_path / "b.npz", "--count", 100, "--batch", batch)["images"].astype(int)
    assert np.abs(images - others).max() <= 1
    points = [
        arrays(capsys, toy, tmp_path / "p.npz", "--count", 80, "--batch", size)["points"] for size in (256, batch)
    ]
    assert np.abs(points[0] - points[1]).max() <= 1e-5


@pytest.mark.parametrize("change", [("--seed", 1), ("--strength", 3), ("--weights", "model")])
def test_seed_strength_and_weights_change_the_samples(capsys, digits, tmp_path, change):
    usual = arrays(capsys, digits, tmp_path / "a.npz", "--count", 20)["images"].astype(int)
    assert np.array_equal(usual, arrays(capsys, digits, tmp_path / "b.npz", "--count", 20)["images"])
    assert np.array_equal(
        usual, arrays(capsys, digits, tmp_path / "c.npz", "--count", 20, "--weights", "ema")["images"]
    )
    other = arrays(capsys, digits, tmp_path / "d.npz", "--count", 20, *change)["images"].astype(int)
    assert np.abs(usual - other).max() > 5


def test_a_converted_checkpoint_can_be_sampled(capsys, tmp_path):
    options = DriftDiTOptions(width=24, depth=2, heads=2, registers=2, style_draws=3, style_entries=5)
    model = DriftDiT(options, sample_shape=(3, 16, 16), classes=6)
    model.initialize(torch.Generator().manual_seed(3))
    torch.save({"model": model.to_published()}, tmp_path / "published.pt")
    assert main(["convert", str(tmp_path / "published.pt")]) == 0
    capsys.readouterr()
    found = arrays(capsys, tmp_path / "published", tmp_path / "a.npz", "--count", 12, "--classes", 5, 2, "--seed", 9)
    expected = sample(model, torch.tensor([5] * 6 + [2] * 6), seed=9)
    assert np.array_equal(found["images"], to_uint8(expected).permute(0, 2, 3, 1).numpy())
    assert found["labels"].tolist() == [5] * 6 + [2] * 6
    assert found["images"].std() > 1


def test_a_pretrained_model_is_sampled_with_every_option(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = load_generator(Path("pretrained:digits"))
    found = arrays(capsys, "pretrained:digits", tmp_path / "a.npz", "--classes", 3, 7, "--count", 6, "--seed", 5)
    expected = sample(model.generator, torch.tensor([3, 3, 3, 7, 7, 7]), seed=5)
    assert np.array_equal(found["images"], to_uint8(expected).permute(0, 2, 3, 1).numpy())
    assert found["labels"].tolist() == [3, 3, 3, 7, 7, 7]
    out = Path("runs/pretrained-digits")
    for arguments, name in (
        ((), "sample-100-seed0-strength1.png"),
        (("--form", "folder", "--count", 2, "--classes", 1), "sample-2-seed0-strength1-1"),
    ):
        status, printed, err = run(capsys, "pretrained:digits", *arguments)
        assert (status, err) == (0, "")
        assert printed.splitlines()[0].startswith(f"{100 if not arguments else 2} samples of pretrained:digits, ")
        assert printed.splitlines()[1] == f"written: {out / name}"
        assert (tmp_path / out / name).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "runs"]


def test_an_unknown_pretrained_model_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "pretrained:cats")
    names = ", ".join(pretrained_names())
    message = f"'pretrained:cats' is not a pretrained model; available: {names}; pass one of these"
    assert (status, out, err) == (2, "", f"truedrift: error: {message}\n")
    assert not list(tmp_path.iterdir())


def test_the_help_names_the_pretrained_models(capsys):
    assert main(["sample", "--help"]) == 0
    printed = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "or a pretrained model such as pretrained:digits, see `truedrift data list`; or a folder" in printed
    assert main(["data", "list"]) == 0
    assert set(re.findall(r"^pretrained:\S+$", capsys.readouterr().out, re.MULTILINE)) == set(pretrained_names())


class Mine(DriftDiT):
    pass


@pytest.fixture(scope="module")
def odd(tmp_path_factory, digits):
    """Paths that cannot be sampled from."""
    here = tmp_path_factory.mktemp("odd")
    (here / "empty").mkdir()
    (here / "file").touch()
    (here / "young").mkdir()
    (here / "young" / "config.json").write_bytes((digits / "config.json").read_bytes())
    (here / "young" / "metrics.jsonl").touch()
    shutil.copytree(digits, here / "absurd")
    tree = json.loads((digits / "config.json").read_text())
    tree["data"]["sample_shape"] = [1, 10**9, 10**9]
    del tree["sha256"]  # older files have none
    (here / "absurd" / "config.json").write_text(json.dumps(tree))
    options = DriftDiTOptions(width=8, depth=1, heads=2, registers=1, style_draws=0, style_entries=0)
    train_small(here / "mine", parts=Parts(generator=Mine(options, sample_shape=(1, 8, 8), classes=10)))
    return here


CLASSES = "available: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9; pass one of these, or its number"
LIMIT = "must be from 1 to 10000000; use the default"
STRENGTH = "must be from 0 to 1e6; pass for example 2"
DIRECTORY = r"the directory '.*' cannot be written \(.+\); must be a directory that exists or can be made; .+"
RUN = "must be a run directory or a folder of weights; pass the path that .+ printed"


@pytest.mark.parametrize(
    ("place", "arguments", "message"),
    [
        ("digits", ["--classes", "10"], f"'10' is not a class; {CLASSES}"),
        ("digits", ["--classes", "cat"], f"'cat' is not a class; {CLASSES}"),
        ("digits", ["--classes", "-1"], f"'-1' is not a class; {CLASSES}"),
        ("digits", ["--count", "0"], f"count is 0; {LIMIT}"),
        ("digits", ["--batch", "0"], f"batch is 0; {LIMIT}"),
        ("digits", ["--strength", "-1"], f"strength is -1.0; {STRENGTH}"),
        ("digits", ["--strength", "nan"], f"strength is nan; {STRENGTH}"),
        ("digits", ["--out", "."], "'.' is a directory; must be a new file or a file to replace; choose another path"),
        ("digits", ["--out", "FILE/a.png"], DIRECTORY),
        ("digits", ["--form", "folder", "--out", "FILE"], DIRECTORY),
        ("none", [], f"'.*none' does not exist; {RUN}"),
        ("file", [], f"'.*file' is a file; {RUN}"),
        ("empty", [], f"'.*empty' has no config.json; {RUN}"),
        ("absurd", [], r"'.*config.json': sample_shape is \(1, 1000000000, 1000000000\); must have at most .*; .*"),
        ("young", [], "the run '.*young' has no checkpoint yet; must have at least one; train it further"),
        (
            "mine",
            [],
            "the generator of '.*mine' is .*Mine, a class of your own; it cannot be built from its name; "
            "pass generator= to load_generator in Python",
        ),
    ],
)
def test_every_mistake_is_one_line_and_status_2(capsys, digits, odd, place, arguments, message):
    path = digits if place == "digits" else odd / place
    arguments = [each.replace("FILE", str(odd / "file")) for each in arguments]
    before = sorted(digits.rglob("*"))
    status, out, err = run(capsys, path, *arguments)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
    assert sorted(digits.rglob("*")) == before


def test_an_unknown_choice_of_weights_is_explained(capsys, digits):
    status, out, err = run(capsys, digits, "--weights", "best")
    assert (status, out) == (2, "")
    assert re.search(r"'best'.*--weights.*'ema'.*'model'.*truedrift sample --help", err, re.DOTALL)


@pytest.mark.parametrize("form", ["grid", "npz", "folder"])
def test_a_full_disk_is_one_line(capsys, digits, tmp_path, monkeypatch, form):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", refuse)
    monkeypatch.setattr(np, "savez", refuse)
    status, _, err = run(capsys, digits, "--form", form, "--out", tmp_path / "out")
    assert status == 2
    assert re.fullmatch(
        r"truedrift: error: the samples cannot be written to .* \(No space left on device\); .*; .*\n", err
    )
    assert not list(tmp_path.rglob("*.npz")) + list(tmp_path.rglob("*.writing"))


@pytest.mark.parametrize(("wanted", "strength"), [("null", 1.5), (1.75, 1.75), (1.2, 1.5), (5, 2)])
def test_default_strength_is_in_the_range_of_the_training(capsys, tmp_path, wanted, strength):
    options = ("condition.strength_low=1.5", "condition.strength_high=2", f"evaluation.strength={wanted}")
    config = recipe("digits", settings=(*SMALL, *options, "cadence.grid_every=12"))
    list(train(config, out=tmp_path / "run", device="cpu"))
    found = arrays(capsys, tmp_path / "run", tmp_path / "default.npz", "--count", 100)
    given = arrays(capsys, tmp_path / "run", tmp_path / "given.npz", "--count", 100, "--strength", strength)
    other = arrays(capsys, tmp_path / "run", tmp_path / "other.npz", "--count", 100, "--strength", 1)
    assert np.array_equal(found["images"], given["images"])
    assert not np.array_equal(found["images"], other["images"])
    # The picture of the run has the same samples.
    _, out, _ = run(capsys, tmp_path / "run")
    name = f"sample-100-seed0-strength{strength:g}.png"
    assert out.endswith(f"{name}\n")
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "run/samples/step-00000012.png").read_bytes()
    # A strength outside of the range is noted.
    assert "note" not in out
    _, out, _ = run(capsys, tmp_path / "run", "--strength", 3)
    assert "\nnote: the generator was trained with strengths from 1.5 to 2, and not with 3\nwritten: " in out
