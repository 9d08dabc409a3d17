"""Saving and loading folders of config.json and model.safetensors, without access to the hub."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from huggingface_hub import PyTorchModelHubMixin
from oracles.generator_zoo import ZOO, inputs, make_generator, perturb
from PIL import Image
from safetensors.torch import load_file, save_file

from truedrift.data import load, to_model_range
from truedrift.errors import UserError
from truedrift.generators import MLP, DriftDiT, find_pretrained, from_pretrained, pretrained, pretrained_names, sample
from truedrift.generators.sampling import balanced_labels
from truedrift.training.pictures import grid_columns, image_grid

EVERY = pytest.mark.parametrize("name", ZOO)


@EVERY
def test_save_and_load_round_trip(name, tmp_path, capsys):
    generator = perturb(make_generator(name))
    assert isinstance(generator, PyTorchModelHubMixin)
    generator.save_pretrained(tmp_path / "saved")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    given = inputs(generator, 5)
    for back in (from_pretrained(tmp_path / "saved"), type(generator).from_pretrained(str(tmp_path / "saved"))):
        assert type(back) is type(generator)
        assert back.options == generator.options
        assert torch.equal(back(*given), generator(*given))
        back.save_pretrained(tmp_path / "again")
    for file in ("config.json", "model.safetensors", "README.md"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "saved" / file).read_bytes()
    assert capsys.readouterr().out == ""


def test_config_is_plain_json(tmp_path):
    make_generator("mlp images").save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "architecture": "mlp",
        "classes": 4,
        "options": {"depth": 2, "embedding": 4, "final_norm": True, "noise": 6, "signs": 0, "width": 32},
        "sample_shape": [1, 4, 4],
    }
    assert "library_name: truedrift" in (tmp_path / "README.md").read_text()


OFFLINE = """
import socket, sys, torch

def refuse(*_, **__):
    raise AssertionError("the network was used")

socket.socket.connect = socket.getaddrinfo = refuse
from truedrift.generators import DriftDiT, from_pretrained
generator = DriftDiT.tiny(channels=1, image_size=8)
generator.save_pretrained(sys.argv[1])
back = from_pretrained(sys.argv[1])
print(all(torch.equal(a, b) for a, b in zip(generator.parameters(), back.parameters())))
"""


def test_saving_and_loading_work_offline(tmp_path):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-W", "error::UserWarning", "-c", OFFLINE, str(tmp_path / "saved")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


@pytest.fixture
def folder(tmp_path):
    make_generator("mlp points").save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


DAMAGES = {
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json; "),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors; "),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "does not name a known architecture "),
    "a list": (lambda f: (f / "config.json").write_text("[1]"), "does not name a known architecture "),
    "another kind": (
        lambda f: change_config(f, architecture="gan"),
        r"does not name a known architecture \('gan'\); must name one of mlp, conv, unet, drift-dit",
    ),
    "no kind": (lambda f: change_config(f, architecture=["mlp"]), "does not name a known architecture "),
    "other options": (lambda f: change_config(f, options={"size": 3}), "options.size "),
    "no options": (lambda f: change_config(f, options=None), "options is None; "),
    "wrong option": (lambda f: change_config(f, options={"width": -3}), "width is -3; "),
    "no shape": (lambda f: change_config(f, sample_shape=None), r"sample_shape is \(\); "),
    "wrong shape": (lambda f: change_config(f, sample_shape=["2"]), "sample_shape is "),
    "no classes": (lambda f: change_config(f, classes=None), "classes is None; "),
    "other classes": (
        lambda f: change_config(f, classes=9),
        "hold the weights that config.json describes .*size mismatch",
    ),
    "40 million classes": (
        lambda f: change_config(f, classes=40_000_000),
        "hold the weights .*size mismatch: label.weight is .* in the file and .40000001, ",
    ),
    "10³⁰ classes": (lambda f: change_config(f, classes=10**30), "hold the weights .*the network cannot be built"),
    "width of 10¹⁵": (lambda f: change_config(f, options={"width": 10**15}), "does not hold the weights "),
    "depth of 10⁹": (
        lambda f: change_config(f, options={"depth": 10**9}),
        "hold the weights .*missing tensors: the file has .* and the network has more",
    ),
    "nested brackets": (
        lambda f: (f / "config.json").write_text("[" * 100_000 + "]" * 100_000),
        "does not name a known architecture ",
    ),
    "config.json of 2 MB": (lambda f: (f / "config.json").write_bytes(bytes(2 << 20)), "has 2,097,152 bytes; must"),
    "cut": (lambda f: os.truncate(f / "model.safetensors", 100), "does not hold the weights "),
    "empty": (lambda f: os.truncate(f / "model.safetensors", 0), "does not hold the weights "),
    "others": (
        lambda f: save_file({"a": torch.zeros(1)}, f / "model.safetensors"),
        "hold the weights .*[Mm]iss",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_one_line(folder, damage):
    change, message = DAMAGES[damage]
    change(folder)
    with pytest.raises(ValueError, match=message) as caught:
        from_pretrained(folder)
    text = str(caught.value)
    assert text.count("; ") >= 2
    assert "\n" not in text


def test_a_network_that_does_not_fit_is_never_built(folder, monkeypatch):
    """It is compared on the meta device: 40 million classes would take 5 GB."""
    built = []
    initialize = MLP.initialize
    monkeypatch.setattr(
        MLP, "initialize", lambda self, *rest: (built.append(self.label.weight.device.type), initialize(self, *rest))
    )
    from_pretrained(folder)
    assert built == ["meta", "cpu"]
    change_config(folder, classes=40_000_000)
    with pytest.raises(UserError, match="size mismatch"):
        from_pretrained(folder)
    assert built == ["meta", "cpu", "meta"]


@pytest.mark.parametrize(("name", "message"), [("nowhere", "does not exist"), ("saved/config.json", "is a file")])
def test_a_missing_folder_is_refused(folder, name, message):
    with pytest.raises(ValueError, match=f"{message}; must be a folder"):
        from_pretrained(folder.parent / name)


def test_a_class_refuses_the_folder_of_another(folder):
    with pytest.raises(ValueError, match=r"^options\.embedding .*; .*width, depth"):
        DriftDiT.from_pretrained(folder)
    assert isinstance(MLP.from_pretrained(folder), MLP)


def test_no_pickle_is_read_even_if_there_is_one(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"has no model\.safetensors"):
        from_pretrained(folder)


# Models in the package

MODEL = pytest.mark.parametrize("name", pretrained_names())


@MODEL
def test_a_model_of_the_package_is_float16_on_disk_and_float32_in_memory(name):
    model, generator = find_pretrained(name), from_pretrained(name)
    assert not generator.training
    saved = load_file(model.folder / "model.safetensors")
    assert {value.dtype for value in saved.values()} == {torch.float16}
    for key, value in generator.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, saved[key].float())
    assert sum(value.numel() for value in generator.parameters()) == model.record["parameters"]
    assert len(model.classes) == generator.classes
    assert list(generator.sample_shape) == model.record["sample_shape"]
    by_folder = from_pretrained(model.folder)  # the folder is one of `save_pretrained`
    assert all(torch.equal(a, b) for a, b in zip(by_folder.parameters(), generator.parameters(), strict=True))


@MODEL
def test_the_files_of_a_model_are_small(name):
    sizes = {path.name: path.stat().st_size for path in find_pretrained(name).folder.iterdir()}
    assert set(sizes) == {"README.md", "config.json", "model.safetensors", "record.json", "samples.png"}
    assert sizes.pop("model.safetensors") < 10_000_000
    assert sizes.pop("samples.png") <= 300_000
    assert max(sizes.values()) < 20_000


@MODEL
def test_samples_are_those_of_the_float32_weights_within_the_recorded_difference(name):
    """samples.png was drawn with the float32 weights of the run."""
    model = find_pretrained(name)
    count, largest = model.record["picture_samples"], model.record["rounding"]["largest"]
    with Image.open(model.folder / "samples.png") as image:
        expected = torch.from_numpy(np.array(image)).int()

    def difference(seed):
        labels = balanced_labels(range(len(model.classes)), count)
        images = sample(from_pretrained(name), labels, seed=seed, strength=model.strength)
        drawn = image_grid(images, grid_columns(count, len(model.classes)))
        return (drawn.int() - expected).abs()

    assert int(difference(0).max()) <= largest + 1  # products of another processor are rounded differently
    assert largest <= 2
    assert float((difference(1) > largest + 1).float().mean()) > 0.2


def test_samples_of_a_class_look_like_its_name():
    """The nearest real digit has the class that the label says, as it does for 99 % of real digits."""
    real, labels = load("digits"), torch.arange(10).repeat(30)
    images = sample(from_pretrained("pretrained:digits"), labels, seed=3)
    nearest = torch.cdist(images.flatten(1), to_model_range(real.values).flatten(1)).argmin(-1)
    names = find_pretrained("pretrained:digits").classes
    found = [names[label] == real.classes[real.labels[k]] for label, k in zip(labels, nearest, strict=True)]
    assert sum(found) / len(found) > 0.9


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A copy of the models in the package, which can be damaged."""
    shutil.copytree(pretrained.MODELS, tmp_path / "models")
    monkeypatch.setattr(pretrained, "MODELS", tmp_path / "models")
    return tmp_path / "models"


def test_one_changed_bit_of_the_weights_is_found(models):
    weights = models / "digits" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    from_pretrained("pretrained:digits")
    content[-1000] ^= 1
    weights.write_bytes(content)
    message = r"^the weights of 'pretrained:digits' have sha256 \w{12}…; must be \w{12}…; .* install truedrift again$"
    with pytest.raises(UserError, match=message):
        from_pretrained("pretrained:digits")
    from_pretrained(models / "digits")  # nothing but the hash tells the difference


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("pretrained:cats", "pass one of these"),
        ("pretrained:", "pass one of these"),
        ("pretrained:../other/cats", "pass one of these"),
        ("pretrained:Digits", "did you mean 'pretrained:digits'?"),
    ],
)
def test_an_unknown_model_is_one_line_with_the_names_of_the_others(models, name, fix):
    (models / "empty").mkdir()
    shutil.copytree(models / "digits", models / "another")
    names = [f"pretrained:{path.name}" for path in sorted(models.iterdir()) if path.name != "empty"]
    message = re.escape(f"{name!r} is not a pretrained model; available: {', '.join(names)}; {fix}")
    for find in (find_pretrained, from_pretrained):
        with pytest.raises(UserError, match=f"^{message}$"):
            find(name)
    assert find_pretrained("pretrained:another").folder == models / "another"
