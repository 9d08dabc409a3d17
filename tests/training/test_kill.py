"""Training processes that are killed, receive signals, or compete for one run directory."""

import os
import re
import signal
from functools import partial

import pytest
from kills import (
    STEPS_PER_KILL,
    WITHOUT_AVERAGE,
    CommandProcess,
    ForkedProcess,
    Kill,
    format_table,
    holds_lock,
    kill_repeatedly,
    newest_step,
    read_outcome,
    run_to_end,
    start_without_average,
    train_arguments,
    unfinished_saves,
    wait_until,
)

from truedrift.training import checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")
STEPS = 110


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    return run_to_end(ForkedProcess, train_arguments(STEPS, out), out)


def read_errors(out):
    return out.with_suffix(".err").read_text().splitlines()


def start_process(out, launch=ForkedProcess, steps=STEPS):
    """Start a process and wait until it has saved at least once."""
    process = launch(train_arguments(steps, out), out.with_suffix(".err"))
    assert wait_until(lambda: holds_lock(out, process) and checkpoint.steps(out / "checkpoints"), process), read_errors(
        out
    )
    return process


def wait_for_exit(process):
    wait_until(lambda: process.exit_status() is not None, process)
    return process.exit_status()


def test_three_kills_do_not_change_the_outcome(tmp_path, uninterrupted):
    """Two of them hit a save; the slow test below has twenty kills."""
    out = tmp_path / "run"
    kills = kill_repeatedly(ForkedProcess, train_arguments(STEPS, out), out, 3, seed=0)
    print(format_table(kills))
    assert len(kills) == 3
    assert sum(kill.inside_save for kill in kills) >= 1
    assert read_outcome(out) == uninterrupted
    assert unfinished_saves(out) == ()  # leftovers were removed


def test_kill_without_restored_average_changes_the_outcome(tmp_path, uninterrupted):
    """Negative control; without a kill the outcome is the same."""
    out = tmp_path / "run"
    launch = partial(ForkedProcess, code=WITHOUT_AVERAGE)
    assert len(kill_repeatedly(launch, train_arguments(STEPS, out), out, 1, seed=1)) == 1
    assert read_outcome(out).state != uninterrupted.state
    not_killed = tmp_path / "not-killed"
    assert run_to_end(launch, train_arguments(STEPS, not_killed), not_killed) == uninterrupted


@pytest.mark.slow
def test_twenty_kills_do_not_change_the_outcome(tmp_path, capsys):
    steps, out = 20 * STEPS_PER_KILL, tmp_path / "run"
    expected = run_to_end(
        CommandProcess, train_arguments(steps, tmp_path / "uninterrupted"), tmp_path / "uninterrupted"
    )
    kills = kill_repeatedly(CommandProcess, train_arguments(steps, out), out, 20, seed=0)
    with capsys.disabled():
        print(f"\n{format_table(kills)}")
    assert len(kills) == 20
    assert sum(kill.inside_save for kill in kills) >= 5
    assert read_outcome(out) == expected
    control = tmp_path / "control"
    assert len(kill_repeatedly(start_without_average, train_arguments(steps, control), control, 2, seed=0)) == 2
    assert read_outcome(control).state != expected.state


def test_unfinished_saves_are_newer_than_every_checkpoint(tmp_path):
    (tmp_path / "checkpoints" / "step-00000010").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-00000010" / "manifest.json").touch()
    assert unfinished_saves(tmp_path) == ()
    (tmp_path / "checkpoints" / "step-00000005").mkdir()  # partly removed by pruning
    assert unfinished_saves(tmp_path) == ()
    (tmp_path / "checkpoints" / "step-00000015").mkdir()
    (tmp_path / "checkpoints" / ".writing-step-00000020").mkdir()
    assert unfinished_saves(tmp_path) == (".writing-step-00000020", "step-00000015")
    assert not Kill(True, 10, ()).inside_save


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGTERM, 75),
        pytest.param(signal.SIGUSR1, 75, marks=pytest.mark.slow),
        (signal.SIGINT, 130),
    ],
)
def test_signal_saves_and_exits_with_its_status(tmp_path, uninterrupted, number, expected):
    out = tmp_path / "run"
    process = start_process(out)
    os.kill(process.pid, number)
    assert wait_for_exit(process) == expected
    start, message = read_errors(out)
    assert start == f"truedrift: digits: {STEPS} steps in {out}"
    found = re.fullmatch(
        rf"truedrift: {number.name}: saved at step (\d+) of {STEPS} in .*; run the same command again to continue",
        message,
    )
    step = int(found[1])
    assert newest_step(out) == step < STEPS
    if number == signal.SIGTERM:
        assert run_to_end(ForkedProcess, train_arguments(STEPS, out), out) == uninterrupted
        assert read_errors(out)[2] == f"truedrift: resuming at step {step} of {STEPS} steps in {out}"


@pytest.mark.slow
def test_command_exits_with_status_75(tmp_path):
    out = tmp_path / "run"
    process = start_process(out, CommandProcess, 2000)
    os.kill(process.pid, signal.SIGTERM)
    assert wait_for_exit(process) == 75


def test_second_process_is_rejected_and_the_first_continues(tmp_path):
    out = tmp_path / "run"
    arguments = train_arguments(5000, out)
    first = start_process(out, steps=5000)
    second_errors = tmp_path / "second.err"
    second = ForkedProcess(arguments, second_errors)
    assert wait_for_exit(second) == 2
    (line,) = second_errors.read_text().splitlines()
    assert re.match(rf"truedrift: error: the run directory .* is in use by process {first.pid} on .*; .*; wait", line)
    before = newest_step(out)
    assert wait_until(lambda: newest_step(out) > before, first)
    first.kill()
    assert first.exit_status() == -signal.SIGKILL
    assert holds_lock(out, first)  # the name of the dead process does not hold the lock
    third = ForkedProcess(arguments, tmp_path / "third.err")
    assert wait_until(lambda: holds_lock(out, third), third)
    newest = newest_step(out)
    assert wait_until(lambda: newest_step(out) > newest, third)
    third.kill()
