"""The lock of a run: one process at a time, released by the kernel however its owner dies."""

import errno
import os
import re
import socket
import subprocess
import sys

import pytest

from truedrift.errors import UserError
from truedrift.training import run_directory
from truedrift.training.run_directory import RunLock

HOLD = """
import os, sys, time
from pathlib import Path
from truedrift.training.run_directory import RunLock

with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

TRY = """
import sys
from pathlib import Path
from truedrift.training.run_directory import RunLock
from truedrift.errors import UserError

try:
    with RunLock(Path(sys.argv[1])):
        print("held")
except UserError as error:
    print(error)
"""


def attempt(start, directory):
    """What another process is told."""
    other = start(TRY, directory)
    assert other.wait() == 0, other.errors
    return "\n".join(other.lines)


def refused(message, pid):
    return message == (
        f"the run directory {message.split(chr(39))[1]!r} is in use by process {pid} on {socket.gethostname()}; "
        "allowed is one process at a time; wait until it ends, stop it, or name another directory"
    )


def test_a_second_process_is_refused_and_let_in_afterwards(start, tmp_path):
    assert attempt(start, tmp_path) == "held"
    with RunLock(tmp_path):
        assert refused(attempt(start, tmp_path), os.getpid())
        assert attempt(start, tmp_path / "another run") == "held"
    assert attempt(start, tmp_path) == "held"


def test_the_kernel_releases_the_lock_of_a_killed_process(start, tmp_path):
    owner = start(HOLD, tmp_path)
    owner.wait_for("held")
    with pytest.raises(UserError, match=f"is in use by process {owner.pid} on "), RunLock(tmp_path):
        pytest.fail("two have the lock")
    assert owner.kill() == -9
    assert (tmp_path / "lock").read_text() == f"{owner.pid} {socket.gethostname()}\n"  # stale, and no obstacle
    with RunLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


FORKED = """
import fcntl, os, sys, time
from pathlib import Path
from truedrift.training import run_directory as lock

if sys.argv[2] == "keep":
    lock._HELD.add = lambda held: None  # the control: the child does not know what to close
with lock.RunLock(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(child, "held", sep="\\n", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("child", "free"), [("close", True), ("keep", False)])
def test_a_forked_child_that_outlives_its_parent_does_not_hold_the_lock(start, tmp_path, child, free):
    owner = start(FORKED, tmp_path, child)
    owner.wait_for("held")
    orphan = int(owner.lines[0])
    assert refused(attempt(start, tmp_path), owner.pid)  # the child's closing took nothing from its parent
    owner.kill()
    try:
        os.kill(orphan, 0)  # it lives
        assert (attempt(start, tmp_path) == "held") is free
    finally:
        os.kill(orphan, 9)


def test_a_started_program_does_not_get_the_file(tmp_path):
    with RunLock(tmp_path) as held:
        assert not os.get_inheritable(held._descriptor)
        code = "print(flush=True); input()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        child = subprocess.Popen([sys.executable, "-c", code], close_fds=False, **pipes)
        child.stdout.readline()  # the system closes files a moment after it lets this process go on
    try:
        with RunLock(tmp_path):  # although the program still runs
            assert child.poll() is None
    finally:
        child.communicate(b"\n")


def test_not_even_the_same_process_gets_it_twice(tmp_path):
    with RunLock(tmp_path) as held:
        with pytest.raises(UserError, match=f"is in use by process {os.getpid()} on"), RunLock(tmp_path):
            pytest.fail("two have the lock")
        with pytest.raises(UserError, match="is in use"), held:
            pytest.fail("two have the lock")
        with pytest.raises(UserError, match="is in use"), RunLock(tmp_path):
            pytest.fail("a refusal released the lock")


def test_it_is_released_by_an_error_and_the_file_stays(tmp_path):
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / "new" / "run"):
        raise ZeroDivisionError
    assert (tmp_path / "new" / "run" / "lock").exists()
    with RunLock(tmp_path / "new" / "run"):
        pass


def test_no_descriptor_is_left_open(tmp_path):
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with RunLock(tmp_path), pytest.raises(UserError, match="is in use"), RunLock(tmp_path):
            pass
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("content", [b"", b"17", b"\xff\xfe", b"\n"])
def test_an_owner_that_did_not_sign_yet(tmp_path, content):
    with RunLock(tmp_path):
        (tmp_path / "lock").write_bytes(content)
        with pytest.raises(UserError, match="is in use by another process; "), RunLock(tmp_path):
            pytest.fail("two have the lock")


def test_nothing_of_an_earlier_signature_stays(tmp_path):
    (tmp_path / "lock").write_text("4194304 " + "x" * 100 + "\n")
    with RunLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be locked \(.*\); .*; "), RunLock(tmp_path / "file"):
        pytest.fail("a file has a lock")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, code):
    def refuse(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(run_directory, "_lock", refuse)
    reason = re.escape(os.strerror(code))
    with pytest.raises(UserError, match=rf"cannot be locked \({reason}\); allowed is a file system"), RunLock(tmp_path):
        pytest.fail("locked without a lock")
