"""Atomic writes, JSON lines and cached tensors, also after a crash."""

import errno
import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from truedrift.errors import UserError
from truedrift.storage import (
    append_json_line,
    cache_directory,
    hash_tensors,
    iterate_json_lines,
    read_json_lines,
    read_regular,
    read_tensors,
    remove_tensors,
    remove_tree,
    scratch_directory,
    write_atomically,
    write_tensors,
)


@pytest.mark.parametrize("sync", [True, False])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, sync):
    path = tmp_path / "file"
    write_atomically(path, b"old", sync=sync)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new", sync=sync)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    write_atomically(path, b"new", sync=sync)
    assert path.read_bytes() == b"new"


def test_pieces_are_written_one_after_the_other_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, iter([b"one ", b"", b"two"]))
    assert path.read_bytes() == b"one two"

    def fail_after_the_first():
        yield b"three"
        raise KeyError("no more pieces")

    with pytest.raises(KeyError, match="no more pieces"):
        write_atomically(path, fail_after_the_first())
    assert path.read_bytes() == b"one two"
    assert list(tmp_path.iterdir()) == [path]


def test_lines_are_read_one_at_a_time(tmp_path):
    """The first line is there before the second, which is damaged, is read."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 0}\n{"n"\n')
    lines = iterate_json_lines(path, strict=True)
    assert next(lines) == {"n": 0}
    with pytest.raises(UserError, match=r"^line 2 of '.*a\.jsonl' is not a JSON object; "):
        next(lines)
    with pytest.raises(UserError, match=r"^'.*b\.jsonl' cannot be read \(No such file or directory\); "):
        list(iterate_json_lines(tmp_path / "b.jsonl", strict=True))


def test_json_lines_are_appended_and_read(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_json_lines(path) == []
    entries = [{"a": 1, "τ": "é"}, {"b": [1.5, None]}, {}]
    for entry in entries:
        append_json_line(path, entry)
    assert read_json_lines(path) == read_json_lines(path, strict=True) == entries
    assert path.read_bytes().count(b"\n") == 3


def test_the_last_bytes_are_read_as_whole_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    for number in range(10):
        append_json_line(path, {"n": number})
    line = len(b'{"n": 0}\n')
    assert [entry["n"] for entry in read_json_lines(path, last_bytes=3 * line + 2)] == [7, 8, 9]
    assert len(read_json_lines(path, last_bytes=1000)) == 10


def test_a_torn_line_is_skipped_and_does_not_damage_the_next_one(tmp_path):
    path = tmp_path / "a.jsonl"
    append_json_line(path, {"n": 0})
    with path.open("ab") as file:
        file.write(b'{"n": ')
    assert read_json_lines(path) == read_json_lines(path, strict=True) == [{"n": 0}]
    append_json_line(path, {"n": 1})
    assert read_json_lines(path) == [{"n": 0}, {"n": 1}]
    with pytest.raises(
        UserError, match=r"^line 2 of '.*a\.jsonl' is not a JSON object; must have one object per line; "
    ):
        read_json_lines(path, strict=True)


@pytest.mark.parametrize("line", [b"", b"[1]", b"NaN", b'{"a": NaN}', b"\xff", b"[" * 100_000])
def test_lines_that_are_not_json_objects(tmp_path, line):
    (tmp_path / "a.jsonl").write_bytes(line + b'\n{"n": 1}\n')
    assert read_json_lines(tmp_path / "a.jsonl") == [{"n": 1}]
    with pytest.raises(UserError, match=r"^line 1 of "):
        read_json_lines(tmp_path / "a.jsonl", strict=True)


def test_a_missing_file_is_an_error_if_strict(tmp_path):
    with pytest.raises(UserError, match=r"cannot be read \(No such file or directory\); must be a JSON-lines file; "):
        read_json_lines(tmp_path / "a.jsonl", strict=True)


def test_cached_tensors_are_read_back_or_count_as_missing(tmp_path):
    path, tensors = tmp_path / "sub" / "a.safetensors", {"w": torch.arange(3.0), "b": torch.zeros(2, 2)}
    assert read_tensors(path) is None
    write_tensors(path, tensors)
    assert hash_tensors(read_tensors(path)) == hash_tensors(tensors)
    assert hash_tensors(tensors | {"b": torch.ones(2, 2)}) != hash_tensors(tensors)
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert read_tensors(path) is None
    remove_tensors(path)
    assert list(path.parent.iterdir()) == []


def test_the_cache_directory_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    assert cache_directory("a") == tmp_path / "a"
    monkeypatch.delenv("TRUEDRIFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "truedrift"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory().is_absolute()


# ---- Regular files ----


def special(path, kind, elsewhere):
    """Put something that is not a regular file in the place of a file."""
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_only_regular_files_are_written(tmp_path, kind):
    """A planted link would overwrite a file elsewhere, and a FIFO would block."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    path = tmp_path / "log.jsonl"
    special(path, kind, elsewhere)
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        append_json_line(path, {"a": 1})
    assert elsewhere.read_text() == "precious"


def test_a_planted_temporary_file_is_replaced(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / ".config.json.writing").symlink_to(elsewhere)
    write_atomically(tmp_path / "config.json", b"new")
    assert (tmp_path / "config.json").read_bytes() == b"new"
    assert elsewhere.read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.json", "elsewhere"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / "config.json").symlink_to(elsewhere)
    write_atomically(tmp_path / "config.json", b"new")
    assert elsewhere.read_text() == "precious"
    assert not (tmp_path / "config.json").is_symlink()


def test_links_are_read_and_fifos_are_not(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link") == b"content"
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "fifo")  # would wait forever


# ---- Scratch directories ----


def test_scratch_directories_of_ended_processes_are_removed(tmp_path):
    old, used = tmp_path / ".fetching-old", tmp_path / ".fetching-used"
    for each in (old, used):
        each.mkdir()
        (each / "part").write_bytes(b"1")
        os.utime(each, (0, 0))
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with scratch_directory(tmp_path, ".fetching-") as scratch:
        assert (old.exists(), used.exists(), scratch.is_dir()) == (False, True, True)
    os.close(descriptor)
    assert [each.name for each in tmp_path.iterdir()] == [".fetching-used"]
    with scratch_directory(tmp_path, ".fetching-"):
        assert not used.exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), lambda path: None])
def test_anything_in_the_place_of_a_directory_is_removed(tmp_path, make):
    make(tmp_path / "step")
    remove_tree(tmp_path / "step", first="manifest.json")
    assert list(tmp_path.iterdir()) == []


def test_threads_write_one_file_at_the_same_time(tmp_path):
    """Each write waits for the one before it: no error, no part of a file, nothing left over."""
    path, contents = tmp_path / "file", [bytes([64 + number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_atomically(path, content), contents * 10))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


WRITE_OFTEN = """
import sys
from pathlib import Path
from truedrift.storage import write_atomically

for _ in range(200):
    write_atomically(Path(sys.argv[1]), sys.argv[2].encode() * 50_000, sync=False)
"""


def test_processes_write_one_file_at_the_same_time(tmp_path):
    path = tmp_path / "file"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE_OFTEN, path, letter]) for letter in "abc"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            seen.add(path.read_bytes())
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert seen <= {letter * 50_000 for letter in (b"a", b"b", b"c")}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["killed", "hard link", "link", "fifo"])
def test_what_is_in_the_place_of_the_unfinished_file_is_removed(tmp_path, kind):
    """A hard link to a file elsewhere: that file keeps its content."""
    elsewhere, unfinished = tmp_path / "elsewhere", tmp_path / "out" / ".file.writing"
    elsewhere.write_bytes(b"precious")
    unfinished.parent.mkdir()
    if kind == "killed":
        unfinished.write_bytes(b"a part")
    elif kind == "fifo":
        os.mkfifo(unfinished)
    else:
        (os.link if kind == "hard link" else os.symlink)(elsewhere, unfinished)
    write_atomically(tmp_path / "out" / "file", b"new")
    assert elsewhere.read_bytes() == b"precious"
    assert [each.read_bytes() for each in unfinished.parent.iterdir()] == [b"new"]


def test_a_file_system_without_locks_is_an_error(tmp_path, monkeypatch):
    """Without locks, concurrent writers would remove each other's unfinished files."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"):
        write_atomically(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}
    with pytest.raises(OSError, match="No locks available"), scratch_directory(tmp_path, ".fetching-"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["a" * 246, "a" * 247, "a" * 255, "ä" * 127, "\udcff" * 255])
def test_a_file_may_have_the_longest_name(tmp_path, monkeypatch, name):
    """The temporary name must not be longer. Short names keep theirs, which other modules remove."""
    temporary, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (temporary.append(old.name), replace(old, new)))
    write_atomically(tmp_path / name, b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"new"}
    assert (temporary == [f".{name}.writing"]) == (len(os.fsencode(name)) <= 246)
    assert temporary[0].endswith(".writing")
