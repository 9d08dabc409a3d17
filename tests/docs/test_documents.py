"""The documents are true: their examples run, and what they name exists."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
THEORY = (ROOT / "docs" / "theory.md").read_text()
TELEMETRY = (ROOT / "docs" / "telemetry.md").read_text()
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def rows():
    """(label, file, tests) of the table in docs/theory.md."""
    for line in THEORY.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[2].startswith("`src/"):
            yield pytest.param(cells[2].strip("`"), re.findall(r"`([^`]+)`", cells[3]), id=cells[0])


@pytest.mark.parametrize("example", PYTHON.findall(README), ids=["two lines", "whole loss"])
def test_readme_examples_run(example):
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr


def test_two_lines_of_the_first_example_change_the_result():
    example = PYTHON.findall(README)[0]
    code = [line for line in example.splitlines() if line.strip()]
    assert len(code) == 15
    changed, plain = {}, {}
    exec(example, changed)
    exec("\n".join(line for line in example.splitlines() if "# line" not in line), plain)
    assert not changed["x"].grad.equal(plain["x"].grad)


def test_telemetry_snippet_runs():
    import torch

    from truedrift.objective import drift_loss

    scope = {"drift_loss": drift_loss, "gen": torch.randn(4, 3, requires_grad=True), "pos": torch.randn(4, 3)}
    (snippet,) = PYTHON.findall(TELEMETRY)
    exec(snippet, scope)
    for name in re.findall(r"^\| `(\w+)`(?:, `(\w+)`)? \|", TELEMETRY, re.MULTILINE):
        assert all(entry in scope["out"].report.summary() for entry in name if entry)


def test_laboratory_snippet_runs():
    exact, sampled = PYTHON.findall((ROOT / "docs" / "laboratory.md").read_text())
    scope = {}
    exec(exact, scope)
    moments = scope["moments"]
    assert moments.bias.shape == (1, 3, 2)
    assert moments.error.shape == moments.variance.shape == (1, 3)
    exec(sampled, scope)
    found = scope["found"]["bootstrap"]
    assert found.corrected.shape == found.naive.shape == found.noise.shape == (5, 2)


@pytest.mark.parametrize(("file", "tests"), list(rows()))
def test_theory_names_files_and_tests_that_exist(file, tests):
    assert (ROOT / file).is_file()
    assert tests
    for test in tests:
        path, name = test.split("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test


def test_every_label_of_the_table_is_in_the_code():
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    labels = set(re.findall(r"`((?:eq|thm|prop|app|fig):\w+)`", THEORY))
    assert len(labels) > 10
    assert {label for label in labels if label not in source} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_exist(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
    for path in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./]+\.\w+)`", document.read_text()):
        assert (ROOT / path).exists(), path


def test_architecture_lists_every_module_and_no_other():
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = {str(path.relative_to(ROOT / "src/truedrift")) for path in (ROOT / "src/truedrift").rglob("*.py")}
    modules = {module for module in modules if not module.endswith(("__init__.py", "__main__.py"))}
    tree = page[page.index("## The tree") : page.index("## One training step")]
    named, package = set(), ""
    for line in tree.splitlines():
        if line.startswith("**"):
            package = re.match(r"\*\*`?([\w]*)", line)[1]
            package = "" if package == "Shared" else f"{package}/"
        named |= {name if "/" in name else package + name for name in re.findall(r"`([\w/]+\.py)`", line)}
    assert named == modules
    walks = page[page.index("## One training step") : page.index("## Contracts")]
    assert set(re.findall(r"`([\w/]+\.py)`", walks)) <= modules


def test_architecture_has_the_layers_of_the_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert "\n".join(f"    {layer}" for layer in contract["layers"]) in page


def test_pipeline_is_the_same_in_all_documents():
    way = ["generators", "encoders", "kernels", "centroids", "field", "objective", "training", "evaluation", "records"]
    for path in (ROOT / "README.md", ROOT / "docs" / "architecture.md", ROOT / "src/truedrift/__init__.py"):
        line = path.read_text()
        line = line[line.index("noise z, label c") :]
        positions = [line.index(f"→ **{room}**" if path.suffix == ".md" else f"→ {room}") for room in way]
        assert positions == sorted(positions), path


def test_diagnosis_snippet_runs():
    (snippet,) = PYTHON.findall((ROOT / "docs" / "diagnosis.md").read_text())
    scope = {}
    exec(snippet, scope)
    assert [at.tau for at in scope["found"].temperatures] == [0.05, 0.2]


def test_training_snippet_runs(tmp_path, monkeypatch):
    (snippet,) = PYTHON.findall((ROOT / "docs" / "training.md").read_text())
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(snippet, scope)
    assert scope["report"].complete
    assert (scope["report"].directory / "checkpoints" / "step-00000100" / "ema.safetensors").exists()


def test_share_snippet_runs():
    (snippet,) = PYTHON.findall((ROOT / "docs" / "share.md").read_text())
    scope = {}
    exec(snippet, scope)
    assert scope["images"].shape == (16, 8, 8)


def test_snippet_of_the_arrays_page_runs(tmp_path, monkeypatch):
    (snippet,) = PYTHON.findall((ROOT / "docs" / "arrays.md").read_text())
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(snippet.replace("steps=300", "steps=20"), scope)
    assert scope["samples"].shape == (100, 13)
    assert (scope["again"].sample(5, label=0) == scope["first"]).all()
    assert str(scope["distance"]).startswith("energy distance ")


def test_training_page_lists_every_recipe():
    from truedrift.recipes import RECIPES

    page = (ROOT / "docs" / "training.md").read_text()
    (table,) = re.findall(r"^\| recipe \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    named = re.findall(r"`([\w-]+)`", "\n".join(line.split("|")[1] for line in table.strip().splitlines()))
    assert named == list(RECIPES)
