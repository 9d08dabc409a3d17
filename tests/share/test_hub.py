"""Push and load, against a fake Hub on 127.0.0.1: what is sent, with which token, and what comes back."""

import os
import subprocess
import sys

import numpy as np
import pytest
from oracles.fake_hub import serve_hub

import truedrift
from truedrift.cli import main
from truedrift.errors import UserError
from truedrift.generators import MLPOptions, build
from truedrift.hub import is_hub_name, require_hub_name
from truedrift.model import Model

SCRIPT = """
import sys
from truedrift.cli import main
assert main(["push", sys.argv[1], "me/tiny", "--private"]) == 0
assert main(["push", sys.argv[1], "me/other", "--private"]) == 2
import numpy, truedrift
numpy.save(sys.argv[2], truedrift.load("me/tiny").sample(5))
try:
    truedrift.load("nobody/nothing")
except truedrift.errors.UserError as error:
    print(error)
"""
UNREACHABLE = """
import truedrift
try:
    truedrift.load("nope/x")
except truedrift.errors.UserError as error:
    print(error)
"""
FILES = {"README.md", "config.json", "export.json", "model.json", "model.safetensors", "samples.png"}


@pytest.fixture(scope="module")
def model():
    generator = build(MLPOptions(width=8, depth=1, noise=3, embedding=2), sample_shape=(1, 4, 4), classes=2, seed=0)
    return Model(generator, ("a", "b"), (0.5, 0.5), strengths=(1.0, 1.0))


@pytest.fixture
def no_token(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)


def test_pushed_model_is_loaded_from_the_hub(model, tmp_path):
    folder = model.save(tmp_path / "saved")
    (folder / "secret.txt").write_text("not for others")
    with serve_hub() as hub:
        finished = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / "samples.npy")],
            env=os.environ
            | {"HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path / "home")}
            | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert finished.returncode == 0, finished.stderr
    # The requests.
    assert {token for *_, token in hub.requests if token} == {"Bearer hf_secret"}
    posted = [path for method, path, _ in hub.requests if method == "POST"]
    assert posted[0] == "/api/repos/create"
    assert "/api/models/me/tiny/commit/main" in posted
    assert (hub.created[0]["name"], hub.created[0]["organization"]) == ("tiny", "me")
    assert hub.created[0].get("private") is True or hub.created[0].get("visibility") == "private"
    # The files.
    assert set(hub.files) == FILES
    assert b'truedrift.load("me/tiny")' in hub.files["README.md"]
    np.testing.assert_array_equal(np.load(tmp_path / "samples.npy"), model.sample(5))
    # The messages. `me/other` cannot be looked at, and is therefore not sent.
    assert 'load: truedrift.load("me/tiny")' in finished.stdout
    assert "the Hub has no model 'nobody/nothing' that you may use" in finished.stdout
    assert "the Hub has no model 'me/other' that you may use" in finished.stderr
    assert not any("me/other/commit" in path for path in posted)
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({"HF_ENDPOINT": "http://127.0.0.1:9"}, "Connection refused"), ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set")],
)
def test_a_hub_that_cannot_be_reached_is_one_line_with_the_reason_in_a_few_words(environment, reason, tmp_path):
    finished = subprocess.run(
        [sys.executable, "-c", UNREACHABLE],
        env=os.environ | {"HF_HOME": str(tmp_path / "home")} | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.stdout == (
        f"'nope/x' is no folder here, and the Hub cannot be reached ({reason}); "
        "must be a folder or a model on the Hub; check the name, or pass the path of a folder that exists\n"
    )


def test_private_is_refused_for_a_public_model(model, tmp_path, monkeypatch):
    from truedrift import hub as module

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, name, *, private, exist_ok):
            assert (private, exist_ok) == (True, True)

        def model_info(self, name):
            return type("Info", (), {"private": False})

        def upload_folder(self, **_):
            raise AssertionError("sent")

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    with pytest.raises(UserError, match="'me/tiny' exists and is public; --private needs a private model"):
        module.upload_model(tmp_path, "me/tiny", ("README.md",), private=True)


def test_dry_run_lists_the_files_and_sends_nothing(capsys, monkeypatch, no_token):
    monkeypatch.setattr("huggingface_hub.HfApi", None)  # a use would fail
    assert main(["push", "pretrained:digits", "me/digits", "--dry-run", "--half"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[2]: int(line.split()[0].replace(",", "")) for line in lines[:-1]}
    assert set(listed) == FILES
    assert 1_700_000 < listed["model.safetensors"] < 1_800_000
    assert lines[-1] == (
        f"would be sent to me/digits (public): 6 files, {sum(listed.values()):,} bytes; nothing was sent"
    )


def test_exported_folder_is_sent_with_the_card_that_the_user_edited(model, tmp_path, capsys, monkeypatch):
    sent = {}

    def upload(folder, name, files, *, private):
        sent.update({path.name: path.read_bytes() for path in folder.iterdir()}, name=name, private=private)
        return "address"

    monkeypatch.setattr("truedrift.cli.push.upload_model", upload)
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    folder = tmp_path / "exported"
    assert main(["export", str(model.save(tmp_path / "saved")), str(folder)]) == 0
    (folder / "README.md").write_text((folder / "README.md").read_text() + "A sentence of mine.\n")
    (folder / "notes.txt").write_text("private")
    assert main(["push", str(folder), "me/tiny"]) == 0
    assert sent.keys() == FILES | {"name", "private"}
    assert sent["README.md"].endswith(b"A sentence of mine.\n")
    assert b'truedrift.load("me/tiny")' in sent["README.md"]
    capsys.readouterr()
    assert main(["push", str(folder), "me/tiny", "--half"]) == 2
    assert "is an exported folder, which is sent as it is" in capsys.readouterr().err


def test_missing_token_is_one_line(capsys, no_token):
    assert main(["push", "pretrained:digits", "me/digits"]) == 2
    assert capsys.readouterr().err == (
        "truedrift: error: no token of the Hugging Face Hub was found; an upload needs one with write access; "
        "run hf auth login, or set HF_TOKEN; tokens: huggingface.co/settings/tokens\n"
    )


@pytest.mark.parametrize("name", ["digits", "me/", "me/a b", "me/../x", "a/b/c", "me/<b>", "me/a--b", "me/a.git"])
def test_wrong_names_are_one_line(name):
    with pytest.raises(UserError, match=r"^name is .*; must be USER/NAME"):
        require_hub_name(name)


def test_a_folder_has_priority_over_the_hub(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("me/tiny")
    model.save("me/tiny")
    assert not is_hub_name("me/tiny")
    assert not is_hub_name("me/missing")
    np.testing.assert_array_equal(truedrift.load("me/tiny").sample(3), model.sample(3))
    with pytest.raises(UserError, match="'me/missing' does not exist"):
        truedrift.load("me/missing")
