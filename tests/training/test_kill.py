"""Processes that are killed, asked to stop, or meet each other on one run directory."""

import os
import re
import signal
from functools import partial

import pytest
from kills import (
    FORGETFUL,
    STEPS_A_KILL,
    Command,
    Forked,
    Kill,
    arguments_of,
    begun,
    complete,
    end_of,
    forgetful,
    holds,
    killed,
    table,
    wait_until,
)

from truedrift.training import checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")
STEPS = 110


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    return complete(Forked, arguments_of(STEPS, out), out)


def errors(out):
    return out.with_suffix(".err").read_text().splitlines()


def started(out, launch=Forked, steps=STEPS):
    """A process that has saved at least once."""
    process = launch(arguments_of(steps, out), out.with_suffix(".err"))
    assert wait_until(lambda: holds(out, process) and checkpoint.steps(out / "checkpoints"), process), errors(out)
    return process


def status(process):
    wait_until(lambda: process.ended() is not None, process)
    return process.ended()


def test_three_kills_change_nothing(tmp_path, whole):
    """Two of them aimed at a save; the twenty of the long version are below."""
    out = tmp_path / "run"
    kills = killed(Forked, arguments_of(STEPS, out), out, 3, seed=0)
    print(table(kills))
    assert len(kills) == 3
    assert sum(kill.inside_save for kill in kills) >= 1
    assert end_of(out) == whole
    assert begun(out) == ()  # leftovers were removed


def test_kills_of_a_program_that_forgets_the_average_turn_it_red(tmp_path, whole):
    out = tmp_path / "run"
    launch = partial(Forked, code=FORGETFUL)
    assert len(killed(launch, arguments_of(STEPS, out), out, 1, seed=1)) == 1
    assert end_of(out).state != whole.state
    unharmed = tmp_path / "unharmed"
    assert complete(launch, arguments_of(STEPS, unharmed), unharmed) == whole  # it is the kill that it does not survive


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path, capsys):
    steps, out = 20 * STEPS_A_KILL, tmp_path / "run"
    expected = complete(Command, arguments_of(steps, tmp_path / "whole"), tmp_path / "whole")
    kills = killed(Command, arguments_of(steps, out), out, 20, seed=0)
    with capsys.disabled():
        print(f"\n{table(kills)}")
    assert len(kills) == 20
    assert sum(kill.inside_save for kill in kills) >= 5
    assert end_of(out) == expected
    control = tmp_path / "control"
    assert len(killed(forgetful, arguments_of(steps, control), control, 2, seed=0)) == 2
    assert end_of(control).state != expected.state


def test_only_what_a_kill_leaves_counts(tmp_path):
    (tmp_path / "checkpoints" / "step-00000010").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-00000010" / "manifest.json").touch()
    assert begun(tmp_path) == ()
    (tmp_path / "checkpoints" / "step-00000005").mkdir()  # half removed by retention
    assert begun(tmp_path) == ()
    (tmp_path / "checkpoints" / "step-00000015").mkdir()
    (tmp_path / "checkpoints" / ".writing-step-00000020-17").mkdir()
    assert begun(tmp_path) == (".writing-step-00000020-17", "step-00000015")
    assert not Kill(True, 10, ()).inside_save


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGTERM, 75),
        pytest.param(signal.SIGUSR1, 75, marks=pytest.mark.slow),
        (signal.SIGINT, 130),
    ],
)
def test_a_signal_saves_and_ends_with_its_status(tmp_path, whole, number, expected):
    out = tmp_path / "run"
    process = started(out)
    os.kill(process.pid, number)
    assert status(process) == expected
    start, said = errors(out)
    assert start == f"truedrift: digits: {STEPS} steps in {out}"
    found = re.fullmatch(
        rf"truedrift: {number.name}: saved at step (\d+) of {STEPS} in .*; run the same command again to continue", said
    )
    step = int(found[1])
    assert max(checkpoint.steps(out / "checkpoints")) == step < STEPS
    if number == signal.SIGTERM:
        assert complete(Forked, arguments_of(STEPS, out), out) == whole
        assert errors(out)[2] == f"truedrift: resuming at step {step} of {STEPS} steps in {out}"


@pytest.mark.slow
def test_the_command_itself_ends_with_75(tmp_path):
    out = tmp_path / "run"
    process = started(out, Command, 2000)
    os.kill(process.pid, signal.SIGTERM)
    assert status(process) == 75


def test_a_second_process_is_refused_and_the_first_goes_on(tmp_path):
    out = tmp_path / "run"
    arguments = arguments_of(5000, out)
    first = started(out, steps=5000)
    refusal = tmp_path / "second.err"
    second = Forked(arguments, refusal)
    assert status(second) == 2
    (line,) = refusal.read_text().splitlines()
    assert re.match(rf"truedrift: error: the run directory .* is in use by process {first.pid} on .*; .*; wait", line)
    before = max(checkpoint.steps(out / "checkpoints"))
    assert wait_until(lambda: max(checkpoint.steps(out / "checkpoints")) > before, first)
    first.kill()
    assert first.ended() == -signal.SIGKILL
    assert holds(out, first)  # the name of the dead process is no lock
    third = Forked(arguments, tmp_path / "third.err")
    assert wait_until(lambda: holds(out, third), third)
    newest = max(checkpoint.steps(out / "checkpoints"))
    assert wait_until(lambda: max(checkpoint.steps(out / "checkpoints")) > newest, third)
    third.kill()
