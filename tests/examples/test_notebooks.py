"""The notebooks of examples/ run at a small scale, and are committed with outputs that anyone may see."""

import base64
import io
import json
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SMALL = {
    "quickstart": "DRAWS = 50\nSTEPS = 5",
    "bias_laboratory": "POOL = 400\nSIZES = (4, 8)\nQUERIES = 3",
    "train_your_images": "EPOCHS = 1\nSTEPS_PER_EPOCH = 2\nWARMUP_STEPS = 1\nSAMPLES = 30",
}
SHOWN = {
    "quickstart": r"tensor\(\[0\.5625, 0\.2188, 0\.2188\]\).*energy distance -?\d",
    "bias_laboratory": r"variance, standard.*n for 1 % of the spread with ABC",
    "train_your_images": r"has 3 classes: one 182, two 177, zero 178.*complete: \d+ steps.*FD \(encoder:convnet\)",
}
"""Text of the outputs."""
PICTURES = {"quickstart": 4, "bias_laboratory": 2, "train_your_images": 1}


def outputs_of(notebook):
    return [output for cell in notebook["cells"] for output in cell.get("outputs", ())]


def text_of(notebook):
    """Return all text that the outputs show."""
    found = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs_of(notebook)]
    return "\n".join("".join(text) for text in found)


def pictures_of(notebook):
    encoded = [output.get("data", {}).get("image/png") for output in outputs_of(notebook)]
    return [Image.open(io.BytesIO(base64.b64decode("".join(each)))) for each in encoded if each]


def test_every_notebook_is_tested():
    assert {path.stem for path in NOTEBOOKS} == set(SMALL) == set(SHOWN) == set(PICTURES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_at_a_small_scale(path, tmp_path, monkeypatch):
    pytest.importorskip("ipykernel", reason="no ipykernel: pip install 'truedrift[dev]'")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    import notebooks

    before = path.read_bytes()
    executed = notebooks.execute(path, tmp_path, SMALL[path.stem])
    assert re.search(SHOWN[path.stem], text_of(executed), re.DOTALL)
    assert len(pictures_of(executed)) == PICTURES[path.stem]
    assert str(tmp_path) not in json.dumps(executed)
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_committed_outputs_are_complete_small_and_clean(path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert len(text) < 500_000
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert [cell["metadata"] for cell in code] == [{"tags": ["parameters"]}, *[{}] * (len(code) - 1)]
    assert len(pictures_of(notebook)) == PICTURES[path.stem]
    assert all(min(picture.size) > 90 for picture in pictures_of(notebook))
    shown = text_of(notebook)
    assert re.search(SHOWN[path.stem], shown, re.DOTALL)
    assert not re.search(r"warning|traceback|error:|/home/|/root/|/tmp/|\d\d:\d\d:\d\d", shown, re.IGNORECASE)
    assert {output["output_type"] for output in outputs_of(notebook)} <= {"stream", "display_data", "execute_result"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert sys.prefix not in text
