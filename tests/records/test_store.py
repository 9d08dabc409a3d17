"""Records are written to a file and read back unchanged; an error names the line that cannot be read."""

import json
import os
import re
import subprocess
from dataclasses import asdict, dataclass, replace
from importlib import import_module

import pytest
import torch

import truedrift
from truedrift import records
from truedrift.paper import fig_illustration
from truedrift.records import append, provenance, read, with_command, writable_directory

provenance_module = import_module("truedrift.records.provenance")


@dataclass(frozen=True)
class Small:
    count: int
    size: float | None
    name: str
    flag: bool
    pair: tuple[float, str]
    later: int | None = None


SMALL = Small(count=3, size=0.1, name="τ", flag=True, pair=(1e-300, "x"))


def line_with(**changes):
    return json.dumps({"record": "Small", **asdict(SMALL), **changes})


def test_illustration_is_read_back_bit_for_bit(tmp_path):
    record = fig_illustration.run(fig_illustration.Options(n=3, draws=5, seed=2))
    append(tmp_path / "records.jsonl", record)
    (again,) = read(tmp_path / "records.jsonl", fig_illustration.Illustration)
    assert again == record
    assert type(again.provenance) is type(record.provenance)
    assert again != replace(record, share_nearer=record.share_nearer + 1e-16 + 0.1)


def test_records_are_appended_in_order_and_read_by_kind(tmp_path):
    path = tmp_path / "records.jsonl"
    none = replace(SMALL, size=None)
    for record in (SMALL, provenance(seed=1, wall_seconds=2.0), none):
        append(path, record)
    assert read(path, Small) == [SMALL, none]
    assert [each.seed for each in read(path, records.Provenance)] == [1]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


def test_record_after_a_torn_line_is_on_a_new_line(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"record": "Sm')
    append(path, SMALL)
    first, second = path.read_text(encoding="utf-8").splitlines()
    assert first == '{"record": "Sm'
    path.write_text(second + "\n", encoding="utf-8")
    assert read(path, Small) == [SMALL]


def test_a_missing_field_takes_its_default(tmp_path):
    """Records can gain fields: older files can still be read."""
    entry = json.loads(line_with(later=5))
    del entry["later"]
    (tmp_path / "r.jsonl").write_text(json.dumps(entry) + "\n", encoding="utf-8")
    assert read(tmp_path / "r.jsonl", Small) == [SMALL]


def test_with_command():
    record = fig_illustration.run(fig_illustration.Options(n=2, draws=2, seed=0))
    assert record.provenance.command is None
    changed = with_command(record, "truedrift demo")
    assert changed.provenance.command == "truedrift demo"
    assert replace(changed, provenance=record.provenance) == record


BAD = {
    "no JSON": (b"{", "JSONDecodeError"),
    "empty": (b"", "JSONDecodeError"),
    "no object": (b"[1, 2]", "list is not a JSON object"),
    "no kind": (b"{}", "KeyError: 'record'"),
    "no UTF-8": (b'{"record": "\xff"}', "UnicodeDecodeError"),
    "too deep": (b"[" * 100_000, "RecursionError"),
    "field missing": (b'{"record": "Small", "count": 1}', "size is missing, it has no default"),
    "field unknown": (line_with(more=1), "more is unknown, known: count, size, name, flag, pair, later"),
    "float for int": (line_with(count=1.5), "count is 1.5, must be an integer"),
    "bool for int": (line_with(count=True), "count is True, must be an integer"),
    "bool for float": (line_with(size=True), "size is True, must be a finite number"),
    "string for float": (line_with(size="1"), "size is '1', must be a finite number"),
    "none for string": (line_with(name=None), "name is None, must be text"),
    "NaN": (line_with(size=float("nan")), "NaN is not JSON"),
    "overflow": (line_with(size=0).replace('"size": 0', '"size": 1e999'), "size is inf, must be a finite number"),
    "tuple too long": (line_with(pair=[1.0, "x", 2]), "must have 2 entries"),
    "string for tuple": (line_with(pair="ab"), "pair is 'ab', must be a list"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_line_is_an_error_with_its_number(tmp_path, case):
    bad, reason = BAD[case]
    path = tmp_path / "records.jsonl"
    append(path, SMALL)
    with path.open("ab") as file:
        file.write((bad if isinstance(bad, bytes) else bad.encode()) + b"\n")
    with pytest.raises(ValueError, match=rf"records\.jsonl, line 2 is not a record \(.*{reason}.*; must be ") as caught:
        read(path, Small)
    assert "\n" not in str(caught.value)


def test_a_number_that_is_not_finite_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        append(tmp_path / "records.jsonl", replace(SMALL, size=float("inf")))
    assert not (tmp_path / "records.jsonl").exists()


def test_provenance():
    result = provenance(seed=5, wall_seconds=1.5)
    assert (result.seed, result.wall_seconds) == (5, 1.5)
    assert result.version == truedrift.__version__
    assert result.torch == torch.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", result.time)
    assert result.commit is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", result.commit)


def test_outside_a_clone_there_is_no_commit(tmp_path, monkeypatch):
    (tmp_path / "records.py").touch()
    monkeypatch.setattr(provenance_module, "__file__", str(tmp_path / "records.py"))
    assert provenance(seed=0, wall_seconds=0.0).commit is None


def test_a_directory_is_made_and_left_empty(tmp_path):
    made = writable_directory(tmp_path / "a" / "b")
    assert made.is_dir()
    assert list(made.iterdir()) == []
    assert writable_directory(made) == made


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file' cannot be written \(is a file\); must be .*; name another one"):
        writable_directory(tmp_path / "file")
    with pytest.raises(ValueError, match=r"file/b' cannot be written \(Not a directory\); must be "):
        writable_directory(tmp_path / "file" / "b")


def test_commit_does_not_write_to_the_clone(tmp_path, monkeypatch):
    """A process that is killed meanwhile would leave the lock of the index behind."""
    file = tmp_path / "records.py"
    file.write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "records.py"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    monkeypatch.setattr(provenance_module, "__file__", str(file))
    os.utime(file, (1, 1))  # the index does not know this time
    before = (tmp_path / ".git" / "index").read_bytes()
    clean = provenance_module.commit()
    assert re.fullmatch("[0-9a-f]{40}", clean)
    assert (tmp_path / ".git" / "index").read_bytes() == before
    file.write_text("2")
    assert provenance_module.commit() == f"{clean}-dirty"
