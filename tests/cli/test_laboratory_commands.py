"""`truedrift report` on files without a record."""

import json
import re

import pytest

from truedrift.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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
