"""The wheel contains every module, is typed, and works outside the clone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_contains_every_module_and_is_typed(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        str(path.relative_to(ROOT / "src"))
        for kind in ("py", "css", "j2")
        for path in (ROOT / "src").rglob(f"*.{kind}")
    }
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
