"""`reproduce` and `report` as a user runs them."""

import json
import re

import pytest

from truedrift.cli.main import main
from truedrift.paper import fig_bias_loglog, normalization, tab_baselines
from truedrift.paper.catalog import ITEMS, STUDIES


@pytest.fixture
def small(monkeypatch):
    """The studies of this file with few points."""
    monkeypatch.setattr(fig_bias_loglog, "POOL_POINTS", 2000)
    monkeypatch.setattr(fig_bias_loglog, "QUERIES", 4)
    monkeypatch.setattr(tab_baselines, "SMOKE_POINTS", 600)
    monkeypatch.setattr(tab_baselines, "SMOKE_QUERIES", 2)
    monkeypatch.setattr(normalization, "POOL_POINTS", 300)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".jsonl"}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("fig:illustration", {"fig_illustration.png", "fig_illustration.pdf"}),
        ("fig:bias_loglog", {f"fig_bias_loglog.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")}),
        ("tab:baselines", {f"tab_baselines.{kind}" for kind in ("md", "tex", "csv")}),
        ("normalization", {f"normalization.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")}),
    ],
)
def test_reproduce_then_report_from_the_record_alone(item, expected, small, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    assert main(["reproduce", item, "--scale", "smoke", "--out", str(out)]) == 0
    first = capsys.readouterr().out
    assert expected <= files(out).keys()
    assert main(["report", str(out), "--out", str(again)]) == 0
    assert capsys.readouterr().out == first.replace(str(out), str(again)) + f"\npage: {again / 'report.html'}\n"
    drawn = files(again)
    page = drawn.pop("report.html")
    assert b"</html>" in page
    assert f"Made by <code>truedrift reproduce {item} --scale smoke</code>".encode() in page
    assert {name: files(out)[name] for name in expected} == drawn


def test_every_study_has_an_item_and_a_label():
    assert set(STUDIES) <= {item.label for item in ITEMS}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig:nothing"], r"item is 'fig:nothing'; must be one of 'fig:illustration', .*'all'; .*"),
        (["reproduce", "all", "--seed", "-1"], r"seed is -1; .*2147483647.*; .*"),
        (["report", "NOWHERE"], r"'.*NOWHERE' does not exist; .*; .*"),
        (["report", "EMPTY"], r"'.*EMPTY' .*records\.jsonl.*; .*; .*"),
        (["report", "OTHER"], r"'.*' has no record of a figure or table; .*; .*"),
        (["report", "BAD"], r".*line 1 is not a record .*; .*; .*"),
    ],
)
def test_mistakes_are_one_line_and_status_2(arguments, message, tmp_path, capsys):
    (tmp_path / "EMPTY").mkdir()
    for name, text in (("OTHER", json.dumps({"record": "Other"})), ("BAD", "no record")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "records.jsonl").write_text(text + "\n")
    arguments = [str(tmp_path / each) if each[:4].isupper() else each for each in arguments]
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
