"""Training processes that receive signals, or compete for one run directory."""

import os
import re
import signal

import pytest
from chaos.commands import Process, wait_until
from chaos.runs import train_arguments
from oracles.outcomes import read_outcome

from truedrift.training import checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
STEPS, ENDLESS = 150, 100_000


def start(out, steps=STEPS, number=0):
    """Start a training; its output goes to a folder beside the run."""
    return Process(train_arguments(out, **{"cadence.steps_per_epoch": steps}), out.with_name(f"output-{number}"))


def newest_step(out):
    return max(checkpoint.steps(out / "checkpoints"), default=0)


def holds_lock(out, process):
    """Return whether the lock file names the process."""
    return (out / "lock").exists() and (out / "lock").read_text().split(" ")[0] == str(process.pid)


def start_and_wait(out, **options):
    """Start a training, and wait until it has saved at least once."""
    process = start(out, **options)
    assert wait_until(lambda: holds_lock(out, process) and newest_step(out), process)
    return process


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 75), pytest.param(signal.SIGUSR1, 75, marks=pytest.mark.slow), (signal.SIGINT, 130)],
)
def test_signal_saves_and_exits_with_its_status(tmp_path, number, status):
    out = tmp_path / "run"
    process = start_and_wait(out, steps=ENDLESS)
    os.kill(process.pid, number)
    ended = process.wait()
    assert ended.status == status
    started, message = ended.messages
    assert started == f"truedrift: digits: {ENDLESS} steps in {out}"
    saved = rf"truedrift: {number.name}: saved at step (\d+) of {ENDLESS} in .*; run the same command again to continue"
    assert int(re.fullmatch(saved, message)[1]) == newest_step(out)


def test_run_that_was_stopped_ends_as_an_uninterrupted_one(tmp_path):
    out, uninterrupted = tmp_path / "run", tmp_path / "uninterrupted"
    process = start_and_wait(out)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait().status == 75
    step = newest_step(out)
    assert 0 < step < STEPS
    resumed = start(out, number=1).wait()
    assert resumed.messages[0] == f"truedrift: resuming at step {step} of {STEPS} steps in {out}"
    assert start(uninterrupted, number=2).wait().status == 0
    assert read_outcome(out) == read_outcome(uninterrupted)


def test_second_process_is_rejected_and_the_first_continues(tmp_path):
    out = tmp_path / "run"
    first = start_and_wait(out, steps=ENDLESS)
    second = start(out, steps=ENDLESS, number=1).wait()
    assert second.status == 2
    refused = rf"truedrift: error: the run directory .* is in use by process {first.pid} on .*; .*; wait"
    assert re.match(refused, second.messages[-1])
    before = newest_step(out)
    assert wait_until(lambda: newest_step(out) > before, first)
    first.kill()
    assert first.exit_status() == -signal.SIGKILL
    assert holds_lock(out, first)  # the name of the dead process does not hold the lock
    newest = newest_step(out)
    third = start(out, steps=ENDLESS, number=2)
    assert wait_until(lambda: holds_lock(out, third) and newest_step(out) > newest, third)
    third.kill()
