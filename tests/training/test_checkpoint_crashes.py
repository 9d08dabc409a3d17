"""Checkpoints survive the end of the process at any call, a full disk and a read-only disk."""

import errno
import os
import shutil
import subprocess
import sys

import pytest
import torch

from truedrift import storage
from truedrift.training import Checkpoint, CheckpointNotSaved, checkpoint, latest_checkpoint

RUN = "3f2a"

PREAMBLE = """
import os, signal, sys
from pathlib import Path

import torch

torch.set_num_threads(1)
from truedrift.errors import UserError
from truedrift.training import Checkpoint, checkpoint, latest_checkpoint

directory = Path(sys.argv[1])

def build_checkpoint(step, size=500):
    tensors = {name: {"w": torch.full((size,), float(step + shift))} for shift, name in enumerate(("g", "e", "o"))}
    return Checkpoint(step, tensors, {**checkpoint.START_FACTS, "step": step})

def is_intact(checkpoint):
    expected = build_checkpoint(checkpoint.step)
    return checkpoint.facts == expected.facts and all(
        torch.equal(checkpoint.tensors[name]["w"], expected.tensors[name]["w"]) for name in expected.tensors
    )
"""


def wait_for_lines(process):
    """Wait for the end of a script without errors; return the lines that it printed."""
    assert process.wait() == 0, process.errors
    return process.lines


# ---- The end of the process ----


EXIT_AT_CALL = """
class CallLimit:
    # Ends the process, as if killed, at call number `limit` of any function that changes the disk.
    def __init__(self, limit):
        self.limit, self.done = limit, 0
        for name in ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir"):
            setattr(os, name, self.count_calls(getattr(os, name)))

    def count_calls(self, function):
        def counted(*arguments, **options):
            if self.done == self.limit:
                os._exit(9)
            self.done += 1
            return function(*arguments, **options)
        return counted

def exit_status_at(limit, work):
    child = os.fork()
    if child == 0:
        CallLimit(limit)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def at_every_call(work, check):
    limit = 0
    while exit_status_at(limit, work) == 9:
        check(limit)
        limit += 1
    print(limit)
"""


def test_exit_at_every_call_of_a_save(start, tmp_path):
    """The previous step is the newest until the manifest is renamed, and the next save is complete."""
    code = """
def check(limit):
    found = latest_checkpoint(directory, run="r")
    assert is_intact(found.checkpoint), limit
    newest.append(found.checkpoint.step)
    (directory / "step-00000002" / "manifest.json").unlink(missing_ok=True)

newest = []
checkpoint.save(directory, build_checkpoint(1), run="r")
at_every_call(lambda: checkpoint.save(directory, build_checkpoint(2), run="r"), check)
print(*sorted(set(newest)), newest == sorted(newest), sorted(os.listdir(directory)))
assert is_intact(latest_checkpoint(directory, run="r").checkpoint)
"""
    calls, summary = wait_for_lines(start(PREAMBLE + EXIT_AT_CALL + code, tmp_path / "checkpoints"))
    assert int(calls) >= 20  # three files with three calls each, their directories, two renames, the manifest
    assert summary == "1 2 True ['step-00000001', 'step-00000002']"


def test_exit_at_every_call_of_a_save_over_a_damaged_checkpoint(start, tmp_path):
    code = """
def damage():
    checkpoint.save(directory, build_checkpoint(2), run="r")
    with open(directory / "step-00000002" / "e.safetensors", "r+b") as file:
        file.truncate(7)

def check(limit):
    assert is_intact(latest_checkpoint(directory, run="r").checkpoint), limit
    damage()

checkpoint.save(directory, build_checkpoint(1), run="r")
damage()
at_every_call(lambda: checkpoint.save(directory, build_checkpoint(2), run="r"), check)
print(latest_checkpoint(directory, run="r").checkpoint.step, sorted(os.listdir(directory)))
"""
    calls, last = wait_for_lines(start(PREAMBLE + EXIT_AT_CALL + code, tmp_path / "checkpoints"))
    assert int(calls) >= 24
    assert last == "2 ['step-00000001', 'step-00000002']"


def test_exit_at_every_call_of_prune(start, tmp_path):
    """A partly removed checkpoint is not listed, and the next call removes the rest."""
    code = """
def fill():
    for step in (1, 2, 3):
        checkpoint.save(directory, build_checkpoint(step), run="r")

def prune_to_two():
    checkpoint.prune(directory, keep_last=2, keep_every=None, best=None)

def check(limit):
    assert checkpoint.steps(directory) in ((1, 2, 3), (2, 3)), checkpoint.steps(directory)
    for step in checkpoint.steps(directory):
        assert is_intact(checkpoint.load(directory / f"step-{step:08d}", run="r"))
    prune_to_two()
    assert sorted(os.listdir(directory)) == ["step-00000002", "step-00000003"]
    fill()

fill()
at_every_call(prune_to_two, check)
"""
    (calls,) = wait_for_lines(start(PREAMBLE + EXIT_AT_CALL + code, tmp_path / "checkpoints"))
    assert int(calls) >= 6


# ---- Full and read-only disks ----


def is_one_line(message):
    return "\n" not in message and message.count("; ") == 2


SAVE_TO_FULL_DISK = """
checkpoint.save(directory, build_checkpoint(1), run="r")
try:
    checkpoint.save(directory, build_checkpoint(2, size=100_000), run="r")
except UserError as error:
    print(type(error).__name__, error)
found = latest_checkpoint(directory, run="r")
print(is_intact(found.checkpoint), found.skipped, sorted(os.listdir(directory)))
checkpoint.save(directory, build_checkpoint(3), run="r")
print(is_intact(latest_checkpoint(directory, run="r").checkpoint), checkpoint.steps(directory))
"""

SAVE_TO_READ_ONLY_DISK = """
import subprocess
subprocess.run(["mount", "-o", "remount,ro", directory.parent], check=True)
for target in (directory, directory.parent / "new"):
    try:
        checkpoint.save(target, build_checkpoint(4), run="r")
    except UserError as error:
        print(type(error).__name__, error)
found = latest_checkpoint(directory, run="r").checkpoint
print(is_intact(found), checkpoint.steps(directory), checkpoint.save(directory, build_checkpoint(1), run="r").name)
"""


def require_full_disk_error(lines, reason):
    message, after, small = lines
    assert message.startswith("CheckpointNotSaved the checkpoint of step 2 cannot be written to ")
    assert f"({reason}); the checkpoint of step 1 is intact; free some space and run the same command" in message
    assert is_one_line(message)
    assert after == "True () ['step-00000001']"
    assert small == "True (1, 3)"


def test_file_size_limit_keeps_the_previous_checkpoint(start, tmp_path):
    limited = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
"""
    require_full_disk_error(
        wait_for_lines(start(PREAMBLE + limited + SAVE_TO_FULL_DISK, tmp_path / "checkpoints")), "File too large"
    )


def test_full_and_read_only_disks_keep_the_previous_checkpoint(tmp_path):
    """Uses a file system of 256 KiB in a private mount namespace, which is then made read-only."""
    mount = 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"'
    unshare = ["unshare", "-rm", "sh", "-c", mount, str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the command unshare and the right to mount")
    command = [
        *unshare,
        sys.executable,
        "-c",
        PREAMBLE + SAVE_TO_FULL_DISK + SAVE_TO_READ_ONLY_DISK,
        str(tmp_path / "checkpoints"),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 0, finished.stderr
    *full, existing, new, last = finished.stdout.splitlines()
    require_full_disk_error(full, "No space left on device")
    assert "(Read-only file system); the checkpoint of step 3 is intact; make the directory writable" in existing
    assert "(Read-only file system); there is no earlier checkpoint; make the directory writable" in new
    assert is_one_line(existing)
    assert is_one_line(new)
    assert last == "True (1, 3) step-00000001"


def build_checkpoint(step):
    return Checkpoint(step, {name: {"w": torch.full((4,), float(step))} for name in ("generator", "ema")})


CALLS = [("write", nth) for nth in range(3)] + [("fsync", nth) for nth in range(6)] + [("replace", 0), ("replace", 1)]
FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "make the directory writable",
    errno.EACCES: "make the directory writable",
    errno.EIO: "check the disk",
}


@pytest.mark.parametrize(("call", "nth"), CALLS)
@pytest.mark.parametrize("code", FIXES)
def test_failing_call_keeps_the_previous_checkpoint(tmp_path, monkeypatch, call, nth, code):
    checkpoint.save(tmp_path, build_checkpoint(5), run=RUN)
    original, count = getattr(os, call), iter(range(100))

    def fail_once(*arguments, **options):
        if next(count) == nth:
            raise OSError(code, os.strerror(code))
        return original(*arguments, **options)

    monkeypatch.setattr(storage.os, call, fail_once)
    with pytest.raises(
        CheckpointNotSaved, match=rf"\({os.strerror(code)}\); the checkpoint of step 5 .*; {FIXES[code]} and"
    ):
        checkpoint.save(tmp_path, build_checkpoint(9), run=RUN)
    monkeypatch.undo()
    found = latest_checkpoint(tmp_path, run=RUN)
    assert (found.checkpoint.step, found.skipped) == (5, ())
    assert os.listdir(tmp_path) == [checkpoint.directory_name(5)]
    checkpoint.save(tmp_path, build_checkpoint(9), run=RUN)
    assert checkpoint.steps(tmp_path) == (5, 9)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 9


def test_file_in_place_of_the_directory_is_rejected(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(ValueError, match=r"cannot be (written|listed).*; .*; "):
        checkpoint.save(tmp_path / "checkpoints", build_checkpoint(1), run=RUN)
