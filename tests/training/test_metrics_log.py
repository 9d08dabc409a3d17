"""The metrics of a run: appended, cut back on resume, the same as those of a run that was never killed."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truedrift.errors import UserError
from truedrift.training import journal
from truedrift.training.journal import MetricsLog, read_metrics
from truedrift.training.telemetry import finite_or_none

ENTRIES = [{"step": step, "loss": 0.1 * step, "name": "é\n"} for step in range(5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def write(path, entries):
    with MetricsLog(path) as log:
        for entry in entries:
            log.append(entry)
        return log.offset()


def test_one_json_object_a_line(path):
    length = write(path, ENTRIES)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == ENTRIES == read_metrics(path)
    assert length == path.stat().st_size
    assert path.read_bytes().endswith(b"}\n")


def test_every_digit_comes_back(path):
    numbers = [0.1 + 0.2, 1e-310, 2**60 + 1, -0.0, 1.7976931348623157e308]
    write(path, [{"numbers": numbers}])
    assert list(map(repr, read_metrics(path)[0]["numbers"])) == list(map(repr, numbers))


def test_numbers_that_are_not_finite_are_refused_and_written_as_null(path):
    entry = {"loss": float("nan"), "n_eff": [1.0, float("inf")], "of": {"best": -float("inf"), "pair": (1, 2.0)}}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(path, [entry])
    write(path, [finite_or_none(entry)])
    assert read_metrics(path) == [{"loss": None, "n_eff": [1.0, None], "of": {"best": None, "pair": [1, 2.0]}}]


def test_a_line_can_be_read_at_once(path):
    log = MetricsLog(path)
    for number, entry in enumerate(ENTRIES, start=1):
        log.append(entry)
        assert len(read_metrics(path)) == number
    log.close()
    log.close()


def test_appending_goes_on(path):
    write(path, ENTRIES[:2])
    write(path, ENTRIES[2:])
    assert read_metrics(path) == ENTRIES


@pytest.mark.parametrize("torn", [b'{"step": 9', b"\x00\x00\x00", b'{"step": 9}'])
def test_a_torn_last_line_is_not_read_and_cut_off(path, torn):
    write(path, ENTRIES[:2])
    with path.open("ab") as file:
        file.write(torn)
    assert read_metrics(path) == ENTRIES[:2]
    write(path, ENTRIES[2:])
    assert read_metrics(path) == ENTRIES


@settings(max_examples=50)
@given(killed=st.integers(0, 400), saved=st.integers(0, 5))
def test_resumed_is_uninterrupted(tmp_path_factory, killed, saved):
    """Saved after some entries, killed at any byte after that, resumed: the bytes of an uninterrupted run."""
    directory = tmp_path_factory.mktemp("run")
    write(directory / "whole", ENTRIES)
    path = directory / "metrics.jsonl"
    offset = write(path, ENTRIES[:saved])
    write(path, [{"step": 77}, *ENTRIES[saved:]])
    os.truncate(path, max(offset, min(killed, path.stat().st_size)))
    with MetricsLog.resume(path, offset) as log:
        for entry in ENTRIES[saved:]:
            log.append(entry)
    assert path.read_bytes() == (directory / "whole").read_bytes()


def test_resuming_at_nothing(path):
    MetricsLog.resume(path, 0).close()
    assert read_metrics(path) == []


@pytest.mark.parametrize("more", [1, 100])
def test_a_file_that_lost_something_is_refused_and_left_alone(path, more):
    offset = write(path, ENTRIES)
    before = path.read_bytes()
    with pytest.raises(
        UserError, match=f"is not the file of the checkpoint, which was made at byte {offset + more} of it; "
    ):
        MetricsLog.resume(path, offset + more)
    assert path.read_bytes() == before


def test_a_missing_file_is_refused(path):
    with pytest.raises(UserError, match="made at byte 10 of it"):
        MetricsLog.resume(path, 10)
    assert not path.exists()


@pytest.mark.parametrize("shift", [-1, 1, -5])
def test_an_offset_within_a_line_is_refused(path, shift):
    offset = write(path, ENTRIES[:2]) + shift
    write(path, ENTRIES[2:])
    before = path.read_bytes()
    with pytest.raises(UserError, match=f"made at byte {offset} of it"):
        MetricsLog.resume(path, offset)
    assert path.read_bytes() == before


def test_a_negative_offset_is_refused(path):
    write(path, ENTRIES)
    with pytest.raises(UserError, match="made at byte -1 of it"):
        MetricsLog.resume(path, -1)


@pytest.mark.parametrize("line", [b"hello", b"[1]", b"\xff", b"", b"[" * 100_000])
def test_a_bad_line_is_told_by_its_number(path, line):
    write(path, ENTRIES[:2])
    path.write_bytes(path.read_bytes() + line + b"\n" + b'{"step": 3}\n')
    with pytest.raises(UserError, match=r"line 3 of .* is not a JSON object; .*; remove"):
        read_metrics(path)


def test_no_file(path):
    with pytest.raises(UserError, match=r"cannot be read \(No such file or directory\)"):
        read_metrics(path)
    with pytest.raises(UserError, match=r"cannot be written \(No such file or directory\)"):
        MetricsLog(path / "below")


def test_a_full_disk_is_one_line(path, monkeypatch):
    def full(descriptor, content):
        raise OSError(28, "No space left on device")

    log = MetricsLog(path)
    log.append(ENTRIES[0])
    monkeypatch.setattr(journal.os, "write", full)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\); .*; free some space"):
        log.append(ENTRIES[1])
    monkeypatch.undo()
    log.close()
    assert read_metrics(path) == ENTRIES[:1]


def test_the_offset_is_on_the_disk(path, monkeypatch):
    synced = []
    monkeypatch.setattr(journal.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with MetricsLog(path) as log:
        log.append(ENTRIES[0])
        synced.clear()
        assert log.offset() == path.stat().st_size
    assert synced == [path.stat().st_size]


def test_after_closing_nothing_is_written(path):
    log = MetricsLog(path)
    log.close()
    with pytest.raises(UserError, match="cannot be written"):
        log.append(ENTRIES[0])
