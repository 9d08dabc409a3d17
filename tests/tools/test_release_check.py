"""The release check knows the extras, a failed check is reported, and the workflows call what the Makefile has."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture
def release_check(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import release_check

    return release_check


def test_every_extra_is_known_with_the_packages_of_the_extras_that_it_names(release_check):
    extras = release_check.read_project()
    assert set(extras) == {release_check.NO_EXTRA, *PROJECT["optional-dependencies"]}
    assert set(release_check.CHECKS) | set(release_check.NOT_INSTALLED) <= set(extras)
    assert list(release_check.requirement_names(release_check.NO_EXTRA, extras)) == ["torch"]
    assert {"numba", "huggingface-hub", "tyro"} <= set(release_check.requirement_names("app", extras))
    assert list(release_check.requirement_names("slurm", extras)) == ["submitit"]


def test_extras_that_are_not_checked_are_listed_with_the_reason(release_check):
    assert set(release_check.EXCEPTIONS) <= set(release_check.read_project())
    dev, fidelity = release_check.skipped_rows(["app", "slurm"])
    assert re.fullmatch(r"dev +skipped +`make test` installs it", dev)
    assert re.fullmatch(r"fidelity +skipped +it needs a torchvision that fits torch, .* --extras names it", fidelity)
    assert release_check.skipped_rows(["app", "fidelity"]) == [dev]


def test_without_extras_all_but_the_exceptions_are_checked(release_check, monkeypatch, capsys, tmp_path):
    checked = []

    def check(extra, *_):
        checked.append(extra)
        return release_check.Result(extra, "", 0, 0.0)

    (tmp_path / "base" / "lib").mkdir(parents=True)
    (tmp_path / "archive").touch()
    monkeypatch.setattr(release_check, "build_archives", lambda: (tmp_path / "archive", tmp_path / "archive"))
    monkeypatch.setattr(release_check, "make_base", lambda *_: tmp_path / "base")
    monkeypatch.setattr(release_check, "check_extra", check)
    monkeypatch.setattr(sys, "argv", ["release_check.py"])
    assert release_check.main() == 0
    assert set(checked) == set(release_check.read_project()) - set(release_check.EXCEPTIONS)
    assert "fidelity     skipped  it needs a torchvision" in capsys.readouterr().out
    checked.clear()
    monkeypatch.setattr(sys, "argv", ["release_check.py", "--extras", "fidelity"])
    assert release_check.main() == 0
    assert checked == [release_check.NO_EXTRA, "fidelity"]
    assert "fidelity     skipped" not in capsys.readouterr().out


def test_a_failed_command_is_an_error_with_its_output(release_check, tmp_path):
    assert release_check.run([sys.executable, "-c", "print('fine')"], tmp_path) == "fine\n"
    with pytest.raises(release_check.CheckFailed, match=r"exit\('no such thing'\)\nno such thing"):
        release_check.run([sys.executable, "-c", "exit('no such thing')"], tmp_path)


def test_a_package_that_is_missing_is_found(release_check, tmp_path, monkeypatch):
    """The package under test is outside of this environment's prefix, so the check of its place must fail first."""
    code = release_check.IMPORT_REQUIREMENTS
    place = "assert Path(truedrift.__file__)"
    assert place in code
    without = "\n".join(line for line in code.splitlines() if not line.startswith(place)).replace(
        "import truedrift\n", ""
    )
    release_check.run([sys.executable, "-c", without, "numpy", "Pillow"], tmp_path)
    with pytest.raises(release_check.CheckFailed, match="AssertionError: no-such-package is not installed"):
        release_check.run([sys.executable, "-c", without, "no-such-package"], tmp_path)


def test_workflows_call_targets_of_the_makefile_and_name_actions_by_major_version():
    makefile = (ROOT / "Makefile").read_text()
    called = set()
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/none@v0"))
                called |= set(re.findall(r"^make ([\w-]+)$", step.get("run", ""), re.MULTILINE))
    assert called == {"test", "browser", "docs", "release-check"}
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in called)


def test_the_versions_of_python_are_those_of_the_tests():
    (matrix,) = [yaml.safe_load(path.read_text())["jobs"]["test"] for path in WORKFLOWS if path.stem == "tests"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13"]
