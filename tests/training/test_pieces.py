"""A long file: whole whatever way it was interrupted, and nothing that is on the disk is made twice."""

import errno
import os
import resource

import pytest

from truedrift.training import feature_cache
from truedrift.training.feature_cache import remove_unfinished, write_resumable

PIECES = [b"head", b"a" * 10, b"bb" * 10, b"", b"c" * 7]
SIZES = [len(piece) for piece in PIECES]


class Interrupted(BaseException):
    pass


@pytest.fixture
def write(tmp_path):
    """→ (content, which pieces were made); `until` interrupts before that piece."""
    path = tmp_path / "file"

    def write(until=None):
        made = []

        def piece(number):
            if number == until:
                raise Interrupted
            made.append(number)
            return PIECES[number]

        try:
            write_resumable(path, SIZES, piece)
        except Interrupted:
            return None, made
        return path.read_bytes(), made

    write.path = path
    return write


@pytest.mark.parametrize("until", range(5))
def test_an_interrupted_file_is_gone_on_with(write, until):
    assert write(until) == (None, list(range(until)))
    assert write() == (b"".join(PIECES), list(range(until, 5)))


def test_it_can_be_interrupted_at_every_piece(write):
    for until in range(5):
        assert write(until)[1] == list(range(max(0, until - 1), until))
    assert write() == (b"".join(PIECES), [4])
    assert write() == (b"".join(PIECES), [])


@pytest.mark.parametrize(
    ("change", "made"),
    {
        "more than was counted": (lambda path, number: path.write_bytes(path.read_bytes() + b"half of one"), [3, 4]),
        "less than was counted": (lambda path, number: path.write_bytes(path.read_bytes()[:-1]), [0, 1, 2, 3, 4]),
        "no file": (lambda path, number: path.unlink(), [0, 1, 2, 3, 4]),
        "no number": (lambda path, number: number.unlink(), [0, 1, 2, 3, 4]),
        "no number in it": (lambda path, number: number.write_text("x"), [0, 1, 2, 3, 4]),
        "too large a number": (lambda path, number: number.write_text("6"), [0, 1, 2, 3, 4]),
        "a negative number": (lambda path, number: number.write_text("-1"), [0, 1, 2, 3, 4]),
    }.values(),
)
def test_what_number_and_file_do_not_agree_on_is_made_again(write, change, made):
    write(3)
    change(write.path, write.path.with_name("file.pieces"))
    assert write() == (b"".join(PIECES), made)


def test_the_disk_is_waited_for_now_and_then(write, monkeypatch):
    monkeypatch.setattr(feature_cache, "SYNC_EVERY", 2)
    noted, note = [], feature_cache._write_count
    monkeypatch.setattr(
        feature_cache, "_write_count", lambda path, file, done: (noted.append(done), note(path, file, done))
    )
    write()
    assert noted == [2, 4, 5]


def test_a_full_disk_gets_its_room_back(write, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    assert write()[0] == b"".join(PIECES)


def test_both_are_removed(write, tmp_path):
    write()
    remove_unfinished(write.path)
    remove_unfinished(write.path)
    assert list(tmp_path.iterdir()) == []
