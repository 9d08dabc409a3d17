"""The lock of a run: one process at a time, released by the kernel however its owner dies."""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys

import pytest

from truedrift.errors import UserError
from truedrift.training.run_directory import lock_run

HOLD = """
import os, sys, time
from pathlib import Path
from truedrift.training.run_directory import lock_run

with lock_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

TRY = """
import sys
from pathlib import Path
from truedrift.training.run_directory import lock_run
from truedrift.errors import UserError

try:
    with lock_run(Path(sys.argv[1])):
        print("held")
except UserError as error:
    print(error)
"""


def attempt(start, directory):
    """Return what another process prints when it tries to take the lock."""
    other = start(TRY, directory)
    assert other.wait() == 0, other.errors
    return "\n".join(other.lines)


def refused(message, pid):
    return message == (
        f"the run directory {message.split(chr(39))[1]!r} is in use by process {pid} on {socket.gethostname()}; "
        "only one process at a time may use it; wait until that process ends, stop it, or choose another directory"
    )


def test_a_second_process_is_refused_and_let_in_afterwards(start, tmp_path):
    assert attempt(start, tmp_path) == "held"
    with lock_run(tmp_path):
        assert refused(attempt(start, tmp_path), os.getpid())
        assert attempt(start, tmp_path / "another run") == "held"
    assert attempt(start, tmp_path) == "held"


def test_the_kernel_releases_the_lock_of_a_killed_process(start, tmp_path):
    owner = start(HOLD, tmp_path)
    owner.wait_for("held")
    with pytest.raises(UserError, match=f"is in use by process {owner.pid} on "), lock_run(tmp_path):
        pytest.fail("two have the lock")
    assert owner.kill() == -9
    assert (tmp_path / "lock").read_text() == f"{owner.pid} {socket.gethostname()}\n"  # stale, and no obstacle
    with lock_run(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


FORKED = """
import os, sys, time
from pathlib import Path
from truedrift.training.run_directory import lock_run

with lock_run(Path(sys.argv[1])):
    if sys.argv[2] == "keep":  # the control: a copy of the open file that nobody closes in the child
        path = os.path.join(sys.argv[1], "lock")
        os.dup(next(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == path))
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
    with lock_run(tmp_path):
        code = "print(flush=True); input()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        child = subprocess.Popen([sys.executable, "-c", code], close_fds=False, **pipes)
        child.stdout.readline()  # the system closes files a moment after it lets this process go on
    try:
        with lock_run(tmp_path):  # although the program still runs
            assert child.poll() is None
    finally:
        child.communicate(b"\n")


def test_not_even_the_same_process_gets_it_twice(tmp_path):
    with lock_run(tmp_path):
        with pytest.raises(UserError, match=f"is in use by process {os.getpid()} on"), lock_run(tmp_path):
            pytest.fail("two have the lock")
        with pytest.raises(UserError, match="is in use"), lock_run(tmp_path):
            pytest.fail("a refusal released the lock")


def test_it_is_released_by_an_error_and_the_file_stays(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_run(tmp_path / "new" / "run"):
        raise ZeroDivisionError
    assert (tmp_path / "new" / "run" / "lock").exists()
    with lock_run(tmp_path / "new" / "run"):
        pass


def test_no_descriptor_is_left_open(tmp_path):
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with lock_run(tmp_path), pytest.raises(UserError, match="is in use"), lock_run(tmp_path):
            pass
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("content", [b"", b"17", b"\xff\xfe", b"\n"])
def test_an_owner_that_did_not_sign_yet(tmp_path, content):
    with lock_run(tmp_path):
        (tmp_path / "lock").write_bytes(content)
        with pytest.raises(UserError, match="is in use by another process; "), lock_run(tmp_path):
            pytest.fail("two have the lock")


def test_nothing_of_an_earlier_signature_stays(tmp_path):
    (tmp_path / "lock").write_text("4194304 " + "x" * 100 + "\n")
    with lock_run(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be created or locked \(.*\); .*; "), lock_run(tmp_path / "file"):
        pytest.fail("a file has a lock")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, code):
    def refuse(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    reason = re.escape(os.strerror(code))
    with (
        pytest.raises(UserError, match=rf"cannot be created or locked \({reason}\); must be .* on a file system"),
        lock_run(tmp_path),
    ):
        pytest.fail("locked without a lock")
