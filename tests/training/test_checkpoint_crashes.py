"""Checkpoints and crashes: killed anywhere, disk full, read-only; what was saved before is there afterwards."""

import errno
import os
import shutil
import subprocess
import sys

import pytest
import torch

from truedrift import storage
from truedrift.training.checkpoint import Checkpoint, CheckpointNotSaved, directory_name, latest_checkpoint, save, steps

RUN = "3f2a"

SHARED = """
import os, random, signal, sys, time
from pathlib import Path

import torch

torch.set_num_threads(1)
from truedrift.training.checkpoint import Checkpoint, latest_checkpoint, save, steps
from truedrift.training.checkpoint import prune
from truedrift.errors import UserError

directory = Path(sys.argv[1])

def state(step, size=500):
    tensors = {name: {"w": torch.full((size,), float(step + shift))} for shift, name in enumerate(("g", "e", "o"))}
    return Checkpoint(step, tensors, {"step": step})

def right(checkpoint):
    want = state(checkpoint.step)
    return checkpoint.facts == want.facts and all(
        torch.equal(checkpoint.tensors[name]["w"], want.tensors[name]["w"]) for name in want.tensors
    )
"""


def finished(started):
    """The lines that the script printed, after it ended without a complaint."""
    assert started.wait() == 0, started.errors
    return started.lines


# --- killed


def test_killed_at_random_moments(start, tmp_path):
    """Eight times: a child saves and prunes as fast as it can until it is killed with signal 9."""
    code = """
for _ in range(8):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        while True:
            step += 1
            save(directory, state(step), run="r")
            os.write(writer, b"%d\\n" % step)
            prune(directory, keep_last=2, keep_every=50, best=None)
    os.close(writer)
    returned = os.read(reader, 1 << 20)
    time.sleep(chance.uniform(0.01, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    returned = (returned + os.read(reader, 1 << 20)).split()
    found = latest_checkpoint(directory, run="r")
    assert right(found.checkpoint)
    print(len(returned), found.checkpoint.step - int(returned[-1]), len(os.listdir(directory)))
    step = found.checkpoint.step
save(directory, state(step + 1), run="r")
prune(directory, keep_last=2, keep_every=None, best=None)
print(steps(directory) == (step, step + 1), len(os.listdir(directory)))
"""
    lines = finished(start(SHARED + "chance, step = random.Random(20), 0" + code, tmp_path / "checkpoints"))
    *kills, last = [line.split() for line in lines]
    assert len(kills) == 8
    assert {int(ahead) for _, ahead, _ in kills} <= {0, 1}  # never behind; ahead if killed before it could tell
    assert sum(int(saved) for saved, _, _ in kills) > 8
    assert last == ["True", "2"]  # nothing is left lying about


CRASH = """
class Counted:
    # At call number `limit` of any function that changes the disk the process ends as if killed.
    def __init__(self, limit):
        self.limit, self.done = limit, 0
        for name in ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir"):
            setattr(os, name, self.counting(getattr(os, name)))

    def counting(self, function):
        def counted(*arguments, **options):
            if self.done == self.limit:
                os._exit(9)
            self.done += 1
            return function(*arguments, **options)
        return counted

def ended_at(limit, work):
    child = os.fork()
    if child == 0:
        Counted(limit)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def at_every_call(work, check):
    limit = 0
    while ended_at(limit, work) == 9:
        check(limit)
        limit += 1
    print(limit)
"""


def test_ended_at_every_single_call_of_a_save(start, tmp_path):
    """The step before stays until the manifest has its name, and the next save is complete."""
    code = """
def check(limit):
    found = latest_checkpoint(directory, run="r")
    assert right(found.checkpoint), limit
    seen.append(found.checkpoint.step)
    (directory / "step-00000002" / "manifest.json").unlink(missing_ok=True)

seen = []
save(directory, state(1), run="r")
at_every_call(lambda: save(directory, state(2), run="r"), check)
print(*sorted(set(seen)), seen == sorted(seen), sorted(os.listdir(directory)))
assert right(latest_checkpoint(directory, run="r").checkpoint)
"""
    calls, seen = finished(start(SHARED + CRASH + code, tmp_path / "checkpoints"))
    assert int(calls) >= 20  # three files of three calls, their directories, two renames, the manifest
    assert seen == "1 2 True ['step-00000001', 'step-00000002']"


def test_ended_at_every_single_call_of_a_save_over_a_damaged_one(start, tmp_path):
    code = """
def damage():
    save(directory, state(2), run="r")
    with open(directory / "step-00000002" / "e.safetensors", "r+b") as file:
        file.truncate(7)

def check(limit):
    assert right(latest_checkpoint(directory, run="r").checkpoint), limit
    damage()

save(directory, state(1), run="r")
damage()
at_every_call(lambda: save(directory, state(2), run="r"), check)
print(latest_checkpoint(directory, run="r").checkpoint.step, sorted(os.listdir(directory)))
"""
    calls, last = finished(start(SHARED + CRASH + code, tmp_path / "checkpoints"))
    assert int(calls) >= 24
    assert last == "2 ['step-00000001', 'step-00000002']"


def test_ended_at_every_single_call_of_a_removal(start, tmp_path):
    """What is left of a removed checkpoint is never taken for one, damaged or not, and goes at the next call."""
    code = """
from truedrift.training.checkpoint import load

def fill():
    for step in (1, 2, 3):
        save(directory, state(step), run="r")

def pruned():
    prune(directory, keep_last=2, keep_every=None, best=None)

def check(limit):
    assert steps(directory) in ((1, 2, 3), (2, 3)), steps(directory)
    assert all(right(load(directory / f"step-{step:08d}", run="r")) for step in steps(directory))
    pruned()
    assert sorted(os.listdir(directory)) == ["step-00000002", "step-00000003"]
    fill()

fill()
at_every_call(pruned, check)
"""
    (calls,) = finished(start(SHARED + CRASH + code, tmp_path / "checkpoints"))
    assert int(calls) >= 6


# --- disk full, read-only


def one_line(message):
    return "\n" not in message and message.count("; ") == 2


FULL = """
save(directory, state(1), run="r")
try:
    save(directory, state(2, size=100_000), run="r")
except UserError as error:
    print(type(error).__name__, error)
found = latest_checkpoint(directory, run="r")
print(right(found.checkpoint), found.skipped, sorted(os.listdir(directory)))
save(directory, state(3), run="r")
print(right(latest_checkpoint(directory, run="r").checkpoint), steps(directory))
"""

READ_ONLY = """
import subprocess
subprocess.run(["mount", "-o", "remount,ro", directory.parent], check=True)
for target in (directory, directory.parent / "new"):
    try:
        save(target, state(4), run="r")
    except UserError as error:
        print(type(error).__name__, error)
found = latest_checkpoint(directory, run="r").checkpoint
print(right(found), steps(directory), save(directory, state(1), run="r").name)
"""


def told_of_a_full_disk(lines, reason):
    message, after, small = lines
    assert message.startswith("CheckpointNotSaved the checkpoint of step 2 cannot be written to ")
    assert f"({reason}); the checkpoint of step 1 is intact; free some space and run the same command" in message
    assert one_line(message)
    assert after == "True () ['step-00000001']"
    assert small == "True (1, 3)"


def test_a_limit_on_files_leaves_the_checkpoint_before_it(start, tmp_path):
    limited = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
"""
    told_of_a_full_disk(finished(start(SHARED + limited + FULL, tmp_path / "checkpoints")), "File too large")


def test_a_full_disk_and_a_read_only_one_leave_the_checkpoint_before(tmp_path):
    """A real file system of 256 KiB, mounted where nobody else sees it, and then made read-only."""
    mount = 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"'
    alone = ["unshare", "-rm", "sh", "-c", mount, str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting needs more rights")
    command = [*alone, sys.executable, "-c", SHARED + FULL + READ_ONLY, str(tmp_path / "checkpoints")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *full, known, new, last = done.stdout.splitlines()
    told_of_a_full_disk(full, "No space left on device")
    assert "(Read-only file system); the checkpoint of step 3 is intact; make the directory writable" in known
    assert "(Read-only file system); there is no earlier checkpoint; make the directory writable" in new
    assert one_line(known)
    assert one_line(new)
    assert last == "True (1, 3) step-00000001"


def state(step):
    return Checkpoint(step, {name: {"w": torch.full((4,), float(step))} for name in ("generator", "ema")})


CALLS = [("write", nth) for nth in range(3)] + [("fsync", nth) for nth in range(6)] + [("replace", 0), ("replace", 1)]
REASONS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "make the directory writable",
    errno.EACCES: "make the directory writable",
    errno.EIO: "check the disk",
}


@pytest.mark.parametrize(("call", "nth"), CALLS)
@pytest.mark.parametrize("code", REASONS)
def test_whichever_call_fails_the_checkpoint_before_stays(tmp_path, monkeypatch, call, nth, code):
    save(tmp_path, state(5), run=RUN)
    original, count = getattr(os, call), iter(range(100))

    def failing(*arguments, **options):
        if next(count) == nth:
            raise OSError(code, os.strerror(code))
        return original(*arguments, **options)

    monkeypatch.setattr(storage.os, call, failing)
    with pytest.raises(
        CheckpointNotSaved, match=rf"\({os.strerror(code)}\); the checkpoint of step 5 .*; {REASONS[code]} and"
    ):
        save(tmp_path, state(9), run=RUN)
    monkeypatch.undo()
    found = latest_checkpoint(tmp_path, run=RUN)
    assert (found.checkpoint.step, found.skipped) == (5, ())
    assert os.listdir(tmp_path) == [directory_name(5)]
    save(tmp_path, state(9), run=RUN)
    assert steps(tmp_path) == (5, 9)
    assert latest_checkpoint(tmp_path, run=RUN).checkpoint.step == 9


def test_a_file_in_the_way_of_the_directory(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(ValueError, match=r"cannot be (written|listed).*; .*; "):
        save(tmp_path / "checkpoints", state(1), run=RUN)
