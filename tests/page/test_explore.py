"""The file that `truedrift explore` writes; tests/browser looks at it in a browser."""

import base64
import hashlib
import json
import re

from truedrift.cli import main
from truedrift.data.toys import FOUR_MODES, THREE_CLUSTERS
from truedrift.page.explore import SCRIPTS, render_explore
from truedrift.page.page import read_resource


def test_the_command_writes_the_page_and_prints_its_path(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["explore"]) == 0
    assert capsys.readouterr().out == "page: runs/explore/index.html\n"
    assert (tmp_path / "runs/explore/index.html").read_text(encoding="utf-8") == render_explore()
    assert main(["explore", "--out", "deep/bias.html"]) == 0
    assert (tmp_path / "deep/bias.html").is_file()
    assert main(["explore", "--out", "runs"]) == 2
    message = "'runs' is a directory; must be a new file or a file to replace; choose another path"
    assert capsys.readouterr().err == f"truedrift: error: {message}\n"


def test_the_policy_has_the_hashes_of_the_style_and_the_script():
    html = render_explore()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', html)
    for tag in ("style", 'script type="module"'):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy.replace("&#39;", "'").replace("&#43;", "+")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_loads_nothing_and_evaluates_no_text():
    html = render_explore()
    assert re.findall(r"https?://|<link(?! rel=\"icon\" href=\"data:,\")|<img|@import|url\(", html) == []
    script = "".join(read_resource(f"explore_{name}.js") for name in SCRIPTS)
    assert re.findall(r"\beval\b|new Function|innerHTML|fetch|XMLHttpRequest|import\b|</script", script) == []


def test_the_page_starts_from_the_settings_of_the_studies():
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', render_explore())
    given = json.loads(data)
    assert given["clusters"] == [list(mean) for mean in THREE_CLUSTERS.means]
    assert given["modes"] == [list(mean) for mean in FOUR_MODES.means]
    assert (given["positives"] % (given["generated"] - 1), given["tau"]) == (0, 1.0)
