"""The lock of a run directory: one process at a time, released by the operating system when its owner ends."""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys

import pytest

from truedrift.errors import UserError
from truedrift.training import lock_run

HOLD_LOCK = """
import os, sys, time
from pathlib import Path
from truedrift.training import lock_run

with lock_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

TRY_LOCK = """
import sys
from pathlib import Path
from truedrift.training import lock_run
from truedrift.errors import UserError

try:
    with lock_run(Path(sys.argv[1])):
        print("held")
except UserError as error:
    print(error)
"""


def try_lock(start, directory):
    """Return the output of another process that tries to take the lock."""
    other = start(TRY_LOCK, directory)
    assert other.wait() == 0, other.errors
    return "\n".join(other.lines)


def is_refusal(message, pid):
    return message == (
        f"the run directory {message.split(chr(39))[1]!r} is in use by process {pid} on {socket.gethostname()}; "
        "only one process at a time may use it; wait until that process ends, stop it, or choose another directory"
    )


def test_second_process_must_wait_for_the_first(start, tmp_path):
    assert try_lock(start, tmp_path) == "held"
    with lock_run(tmp_path):
        assert is_refusal(try_lock(start, tmp_path), os.getpid())
        assert try_lock(start, tmp_path / "another run") == "held"
    assert try_lock(start, tmp_path) == "held"


def test_operating_system_releases_the_lock_of_a_killed_process(start, tmp_path):
    owner = start(HOLD_LOCK, tmp_path)
    owner.wait_for("held")
    with pytest.raises(UserError, match=f"is in use by process {owner.pid} on "), lock_run(tmp_path):
        pytest.fail("locked twice")
    assert owner.kill() == -9
    assert (tmp_path / "lock").read_text() == f"{owner.pid} {socket.gethostname()}\n"  # a stale name does not block
    with lock_run(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


FORK_WITH_LOCK = """
import os, sys, time
from pathlib import Path
from truedrift.training import lock_run

with lock_run(Path(sys.argv[1])):
    if sys.argv[2] == "keep":  # negative control: a copy of the open file that stays open in the child
        path = os.path.join(sys.argv[1], "lock")
        os.dup(next(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == path))
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(child, "held", sep="\\n", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("child", "free"), [("close", True), ("keep", False)])
def test_forked_child_does_not_hold_the_lock_of_its_dead_parent(start, tmp_path, child, free):
    owner = start(FORK_WITH_LOCK, tmp_path, child)
    owner.wait_for("held")
    orphan = int(owner.lines[0])
    assert is_refusal(try_lock(start, tmp_path), owner.pid)  # the parent still holds the lock
    owner.kill()
    try:
        os.kill(orphan, 0)  # the child is alive
        assert (try_lock(start, tmp_path) == "held") is free
    finally:
        os.kill(orphan, 9)


def test_started_program_does_not_inherit_the_lock(tmp_path):
    with lock_run(tmp_path):
        code = "print(flush=True); input()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        child = subprocess.Popen([sys.executable, "-c", code], close_fds=False, **pipes)
        child.stdout.readline()  # the child has closed inherited files when it prints
    try:
        with lock_run(tmp_path):  # while the program still runs
            assert child.poll() is None
    finally:
        child.communicate(b"\n")


def test_same_process_cannot_lock_twice(tmp_path):
    with lock_run(tmp_path):
        with pytest.raises(UserError, match=f"is in use by process {os.getpid()} on"), lock_run(tmp_path):
            pytest.fail("locked twice")
        with pytest.raises(UserError, match="is in use"), lock_run(tmp_path):
            pytest.fail("the refusal released the lock")


def test_error_releases_the_lock_and_keeps_the_file(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_run(tmp_path / "new" / "run"):
        raise ZeroDivisionError
    assert (tmp_path / "new" / "run" / "lock").exists()
    with lock_run(tmp_path / "new" / "run"):
        pass


def test_file_descriptors_are_closed(tmp_path):
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with lock_run(tmp_path), pytest.raises(UserError, match="is in use"), lock_run(tmp_path):
            pass
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("content", [b"", b"17", b"\xff\xfe", b"\n"])
def test_owner_without_a_valid_name(tmp_path, content):
    with lock_run(tmp_path):
        (tmp_path / "lock").write_bytes(content)
        with pytest.raises(UserError, match="is in use by another process; "), lock_run(tmp_path):
            pytest.fail("locked twice")


def test_name_of_an_earlier_owner_is_overwritten(tmp_path):
    (tmp_path / "lock").write_text("4194304 " + "x" * 100 + "\n")
    with lock_run(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


def test_directory_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be created or locked \(.*\); .*; "), lock_run(tmp_path / "file"):
        pytest.fail("a file was locked")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_rejected(tmp_path, monkeypatch, code):
    def fail(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)
    reason = re.escape(os.strerror(code))
    with (
        pytest.raises(UserError, match=rf"cannot be created or locked \({reason}\); must be .* on a file system"),
        lock_run(tmp_path),
    ):
        pytest.fail("locked without a lock")
