"""The wheel contains every module and pretrained model, is typed, and works outside the clone."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(target, folder):
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_contains_every_module_and_is_typed(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        str(path.relative_to(ROOT / "src"))
        for kind in ("py", "css", "j2", "js", "json", "safetensors", "png", "md")
        for path in (ROOT / "src").rglob(f"*.{kind}")
    }
    assert "truedrift/pretrained/digits/model.safetensors" in modules
    assert modules | {"truedrift/py.typed"} <= names
    assert not any(name.startswith(("tests", "benchmarks", "examples")) for name in names)


def test_the_wheel_is_imported_and_used_outside_the_clone(wheel, tmp_path):
    code = (
        "import torch, truedrift; print(truedrift.__file__);"
        "print(float(truedrift.abc_weights(torch.tensor([0.5, 0.3, 0.2])).sum()))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    file, total = finished.stdout.split()
    assert file.startswith(str(wheel))
    assert float(total) == pytest.approx(1)


def test_the_source_distribution_contains_the_pretrained_models(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    models = [path for path in (ROOT / "src" / "truedrift" / "pretrained").rglob("*") if path.is_file()]
    assert {str(path.relative_to(ROOT)) for path in models} <= names
    assert {"tools/add_pretrained.py", "examples/quickstart.ipynb", "mkdocs.yml"} <= names  # and their tests


OFFLINE = """
import socket, sys

def refuse(*_, **__):
    raise AssertionError("the network was used")

socket.socket.connect = socket.getaddrinfo = refuse
from truedrift.cli import main
status = main(["sample", "pretrained:digits", "--device", "cpu"])
import truedrift
print(truedrift.__file__, file=sys.stderr)
raise SystemExit(status)
"""


def test_a_pretrained_model_is_sampled_right_after_installation_without_a_network(wheel, tmp_path):
    """As pip does it: the wheel is unpacked. The cache is empty."""
    installed, home = tmp_path / "installed", tmp_path / "home"
    zipfile.ZipFile(wheel).extractall(installed)
    home.mkdir()
    finished = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(installed), "HOME": str(home), "TRUEDRIFT_CACHE": str(home / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.strip() == str(installed / "truedrift" / "__init__.py")
    picture = "runs/pretrained-digits/sample-100-seed0-strength1.png"
    assert finished.stdout == f"100 samples of pretrained:digits, strength 1, seed 0\nwritten: {picture}\n"
    assert (home / picture).stat().st_size > 1000
    assert not (home / "cache").exists()
