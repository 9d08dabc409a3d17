"""The page of `truedrift serve` without a browser: its controls, its classes, and clear errors."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import truedrift
from truedrift.cli import main
from truedrift.share import serve
from truedrift.share.serve import list_choices

SCRIPT = """
import json, sys, truedrift
from truedrift.share.serve import make_page

for name in sys.argv[1:]:
    blocks = make_page(truedrift.load(name), "title").blocks.values()
    (slider,) = [block for block in blocks if getattr(block, "elem_id", None) == "strength"]
    print(json.dumps([slider.visible, slider.minimum, slider.maximum, slider.value]))
"""


def test_strength_is_offered_only_with_guidance():
    pytest.importorskip("gradio", reason="no gradio: pip install 'truedrift[serve]'")
    # In a process of its own, since gradio leaves event loops open.
    command = [sys.executable, "-c", SCRIPT, "pretrained:cifar10", "pretrained:digits"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    guided, plain = map(json.loads, printed)
    assert guided == [True, 1, 3, 2]
    assert plain[0] is False


def test_classes_of_equal_names_can_be_told_apart():
    model = replace(truedrift.load("pretrained:digits"), classes=("a", "b", "a", "", "all classes", *"56789"))
    choices = list_choices(model)
    assert [each.text for each in choices][:6] == ["all classes", "a (0)", "b", "a (2)", "(no name)", "all classes (4)"]
    assert [each.classes for each in choices][:3] == [None, (0,), (1,)]
    assert len({each.text for each in choices}) == 11


def test_mistakes_are_one_line(capsys, monkeypatch):
    assert main(["serve", "pretrained:digits", "--port", "70000"]) == 2
    assert "port is 70000; must be from 1 to 65535, or 0 for any free one" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["serve", "pretrained:digits"]) == 2
    assert capsys.readouterr().err == (
        "truedrift: error: gradio is not installed; truedrift serve requires it; run pip install 'truedrift[serve]'\n"
    )


def test_page_is_for_this_computer_only():
    with serve.open_socket(0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"
