"""Saving and loading folders of config.json and model.safetensors, without access to the hub."""

import json
import os
import subprocess
import sys

import pytest
import torch
from huggingface_hub import PyTorchModelHubMixin
from oracles.generator_zoo import ZOO, inputs, make_generator, perturb
from safetensors.torch import save_file

from truedrift.generators import MLP, DriftDiT, from_pretrained

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
        "options": {"depth": 2, "embedding": 4, "noise": 6, "width": 32},
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
