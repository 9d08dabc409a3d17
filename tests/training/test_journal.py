"""metrics.jsonl: append, read, and truncate on resume, so that it equals the file of an uninterrupted run."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from short_runs import at_step, run, run_outcome, short_config

from truedrift.errors import UserError
from truedrift.training import MetricsLog, journal, read_metrics, telemetry

ENTRIES = [{"step": step, "loss": 0.1 * step, "name": "é\n"} for step in range(5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def write_entries(path, entries):
    with MetricsLog(path) as log:
        for entry in entries:
            log.append(entry)
        return log.sync()[0]


def test_one_json_object_per_line(path):
    length = write_entries(path, ENTRIES)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == ENTRIES == read_metrics(path)
    assert length == path.stat().st_size
    assert path.read_bytes().endswith(b"}\n")


def test_numbers_are_restored_exactly(path):
    numbers = [0.1 + 0.2, 1e-310, 2**60 + 1, -0.0, 1.7976931348623157e308]
    write_entries(path, [{"numbers": numbers}])
    assert list(map(repr, read_metrics(path)[0]["numbers"])) == list(map(repr, numbers))


def test_nonfinite_numbers_are_rejected_unless_converted_to_null(path):
    entry = {"loss": float("nan"), "n_eff": [1.0, float("inf")], "nested": {"best": -float("inf"), "pair": (1, 2.0)}}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_entries(path, [entry])
    write_entries(path, [telemetry.finite_or_none(entry)])
    assert read_metrics(path) == [{"loss": None, "n_eff": [1.0, None], "nested": {"best": None, "pair": [1, 2.0]}}]


def test_lines_are_readable_immediately(path):
    log = MetricsLog(path)
    for number, entry in enumerate(ENTRIES, start=1):
        log.append(entry)
        assert len(read_metrics(path)) == number
    log.close()
    log.close()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\n", b"{}\n", b"{}\n" + b"x" * 20, b"{}\n" * 9 + b"x", b"x" * 40, b"{}\n" * 9]
)
@pytest.mark.parametrize("block", [1, 3, 7, 1000])
def test_reopened_log_keeps_the_whole_lines(path, monkeypatch, content, block):
    """The last newline is searched from the end, block by block."""
    monkeypatch.setattr(journal, "LATEST_BYTES", block)
    path.write_bytes(content)
    with MetricsLog(path) as log:
        assert log.sync()[0] == content.rfind(b"\n") + 1
    assert path.read_bytes() == content[: content.rfind(b"\n") + 1]


def test_reopened_log_appends(path):
    write_entries(path, ENTRIES[:2])
    write_entries(path, ENTRIES[2:])
    assert read_metrics(path) == ENTRIES


@pytest.mark.parametrize("torn", [b'{"step": 9', b"\x00\x00\x00", b'{"step": 9}'])
def test_torn_last_line_is_ignored_and_removed(path, torn):
    write_entries(path, ENTRIES[:2])
    with path.open("ab") as file:
        file.write(torn)
    assert read_metrics(path) == ENTRIES[:2]
    write_entries(path, ENTRIES[2:])
    assert read_metrics(path) == ENTRIES


@settings(max_examples=50)
@given(killed_at=st.integers(0, 400), saved=st.integers(0, 5))
def test_resumed_log_equals_uninterrupted_log(tmp_path_factory, killed_at, saved):
    """Saved after some entries, killed at any later byte, resumed: the bytes of an uninterrupted run."""
    directory = tmp_path_factory.mktemp("run")
    write_entries(directory / "uninterrupted", ENTRIES)
    path = directory / "metrics.jsonl"
    offset = write_entries(path, ENTRIES[:saved])
    write_entries(path, [{"step": 77}, *ENTRIES[saved:]])
    os.truncate(path, max(offset, min(killed_at, path.stat().st_size)))
    with MetricsLog.resume(path, offset) as log:
        for entry in ENTRIES[saved:]:
            log.append(entry)
    assert path.read_bytes() == (directory / "uninterrupted").read_bytes()


def test_resume_of_a_missing_log_at_offset_0(path):
    MetricsLog.resume(path, 0).close()
    assert read_metrics(path) == []


@pytest.mark.parametrize("missing", [1, 100])
def test_shortened_file_is_rejected_unchanged(path, missing):
    offset = write_entries(path, ENTRIES)
    before = path.read_bytes()
    with pytest.raises(
        UserError,
        match=f"saved when the file had {offset + missing} bytes; must contain every line .*; restore the file, or ",
    ):
        MetricsLog.resume(path, offset + missing)
    assert path.read_bytes() == before


def test_resume_of_a_missing_file_is_rejected(path):
    with pytest.raises(
        UserError, match=r"saved when the file had 10 bytes; must contain every line .*; restore the file, or "
    ):
        MetricsLog.resume(path, 10)
    assert not path.exists()


@pytest.mark.parametrize("shift", [-1, 1, -5])
def test_offset_inside_a_line_is_rejected(path, shift):
    offset = write_entries(path, ENTRIES[:2]) + shift
    write_entries(path, ENTRIES[2:])
    before = path.read_bytes()
    with pytest.raises(
        UserError, match=f"saved when the file had {offset} bytes; must contain every line .*; restore the file, or "
    ):
        MetricsLog.resume(path, offset)
    assert path.read_bytes() == before


def test_negative_offset_is_rejected(path):
    write_entries(path, ENTRIES)
    with pytest.raises(
        UserError, match=r"saved when the file had -1 bytes; must contain every line .*; restore the file, or "
    ):
        MetricsLog.resume(path, -1)


@pytest.mark.parametrize("line", [b"hello", b"[1]", b"\xff", b"", b"[" * 100_000])
def test_invalid_line_error_has_the_line_number(path, line):
    write_entries(path, ENTRIES[:2])
    path.write_bytes(path.read_bytes() + line + b"\n" + b'{"step": 3}\n')
    with pytest.raises(UserError, match=r"line 3 of .* is not a JSON object; .*; remove"):
        read_metrics(path)


def test_missing_file_or_directory_error(path):
    with pytest.raises(UserError, match=r"cannot be read \(No such file or directory\)"):
        read_metrics(path)
    with pytest.raises(UserError, match=r"cannot be written \(No such file or directory\)"):
        MetricsLog(path / "below")


def test_full_disk_error(path, monkeypatch):
    def raise_no_space(descriptor, content):
        raise OSError(28, "No space left on device")

    log = MetricsLog(path)
    log.append(ENTRIES[0])
    monkeypatch.setattr(journal.os, "write", raise_no_space)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\); .*; free some space"):
        log.append(ENTRIES[1])
    monkeypatch.undo()
    log.close()
    assert read_metrics(path) == ENTRIES[:1]


def test_offset_syncs_the_file(path, monkeypatch):
    synced = []
    monkeypatch.setattr(journal.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with MetricsLog(path) as log:
        log.append(ENTRIES[0])
        synced.clear()
        assert log.sync()[0] == path.stat().st_size
    assert synced == [path.stat().st_size]


@pytest.mark.parametrize("failure", ["renamed", "removed", "another file in its place"])
def test_a_log_that_was_moved_is_not_written(tmp_path, failure):
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    with MetricsLog(path) as log:
        log.append(ENTRIES[0])
        moved = tmp_path / "moved.jsonl"
        path.rename(moved)
        if failure == "removed":
            moved.unlink()
        elif failure == "another file in its place":
            path.write_bytes(moved.read_bytes())
        for write in (lambda: log.append(ENTRIES[1]), log.sync):
            with pytest.raises(UserError, match=r"metrics.jsonl' was moved, removed or replaced during the run; .*; "):
                write()
    for kept in (path, moved):
        assert not kept.exists() or read_metrics(kept) == ENTRIES[:1]


def test_a_run_whose_directory_is_renamed_stops(tmp_path):
    """It stops at the next line of its log; nothing is written to the old place, and the run goes on from its place."""
    out, moved = tmp_path / "run", tmp_path / "moved"
    config = short_config("digits")
    with pytest.raises(UserError, match="a run directory must stay in its place"):
        run(config, out, progress=at_step(5, lambda: out.rename(moved)), log=())
    assert not out.exists()
    moved.rename(out)
    assert run_outcome(config, out, log=()) == run_outcome(config, tmp_path / "other", log=())


def test_append_after_close_is_rejected(path):
    log = MetricsLog(path)
    log.close()
    with pytest.raises(UserError, match="cannot be written"):
        log.append(ENTRIES[0])
