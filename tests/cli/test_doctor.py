"""`truedrift doctor`: what it prints is true, and its table of extras is that of the package."""

import re
import tomllib
from pathlib import Path

import torch

from truedrift.cli import doctor, main

ROOT = Path(__file__).parents[2]


def test_it_prints_versions_devices_and_extras(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "one").write_bytes(b"0" * 3_000_000)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^  torch +{re.escape(torch.__version__)}$", printed, re.MULTILINE)
    assert re.search(rf"^  threads +{torch.get_num_threads()} of torch$", printed, re.MULTILINE)
    assert re.search(r"^  features +3 MB$", printed, re.MULTILINE)
    assert re.search(r"^  not fetched +mnist, .*inception", printed, re.MULTILINE)
    assert [line for line in printed.splitlines() if line and not line.startswith(" ")] == [
        "versions",
        "machine",
        "cache",
        "extras",
    ]


def test_a_missing_package_is_named_with_its_extra(capsys, monkeypatch):
    found = doctor.package_version
    monkeypatch.setattr(doctor, "package_version", lambda name: None if name == "submitit" else found(name))
    main(["doctor"])
    assert "missing submitit; for truedrift reproduce --executor slurm: pip install 'truedrift[slurm]'" in (
        capsys.readouterr().out
    )


def test_home_directory_is_not_printed(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    main(["doctor"])
    printed = capsys.readouterr().out
    assert "~/cache" in printed
    assert str(tmp_path) not in printed


def test_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        extra: {re.match(r"[\w-]+", each)[0].lower() for each in packages if not each.startswith("truedrift")}
        for extra, packages in project["optional-dependencies"].items()
        if extra != "dev"
    }
    assert {extra: set(packages) for extra, (packages, _) in doctor.EXTRAS.items()} == declared
