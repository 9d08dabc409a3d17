"""Signals: asked to stop at the end of the step, with a documented status; handlers come and go."""

import os
import signal
import threading
import time

import pytest

from truedrift.training.signals import EXIT_STATUS, EXIT_STATUS_KEYBOARD, StopSignal

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def handlers():
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize(
    ("number", "name", "status"),
    [(signal.SIGTERM, "SIGTERM", 75), (signal.SIGUSR1, "SIGUSR1", 75), (signal.SIGINT, "SIGINT", 130)],
)
def test_a_signal_asks_and_names_itself(number, name, status):
    with StopSignal() as interruption:
        assert (interruption.received, interruption.exit_status) == (None, None)
        os.kill(os.getpid(), number)
        assert interruption.received == name
        assert interruption.exit_status == status
    assert interruption.received == name  # still to be read behind the loop


def test_the_documented_numbers():
    assert EXIT_STATUS == os.EX_TEMPFAIL == 75
    assert EXIT_STATUS_KEYBOARD == 128 + signal.SIGINT == 130


def test_a_second_sigint_stops_immediately():
    with StopSignal() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.received == "SIGINT"


def test_the_first_who_asks_is_named():
    with StopSignal() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # a second one changes nothing
        os.kill(os.getpid(), signal.SIGINT)  # the first of its kind only asks
        assert (interruption.received, interruption.exit_status) == ("SIGTERM", EXIT_STATUS)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_handlers_are_restored(error):
    def mine(number, frame):
        pass

    original = signal.signal(signal.SIGUSR1, mine)
    try:
        before = handlers()
        try:
            with StopSignal():
                assert all(inside != outside for inside, outside in zip(handlers(), before, strict=True))
                if error:
                    raise error
        except ZeroDivisionError:
            pass
        assert handlers() == before
        assert mine in before
    finally:
        signal.signal(signal.SIGUSR1, original)


def test_one_inside_another():
    before = handlers()
    with StopSignal() as outer:
        with StopSignal() as inner:
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
    assert (inner.received, outer.received) == ("SIGUSR1", "SIGTERM")
    assert handlers() == before


def test_an_ignored_sigint_stays_ignored_and_the_others_do_not():
    originals = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        with StopSignal() as interruption:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert interruption.received is None
            os.kill(os.getpid(), signal.SIGUSR1)
            assert interruption.received == "SIGUSR1"
        assert handlers() == [signal.SIG_IGN] * 3
    finally:
        for number, handler in originals.items():
            signal.signal(number, handler)


def test_elsewhere_than_in_the_main_thread_it_does_nothing():
    before, seen = handlers(), []

    def work():
        with StopSignal() as interruption:
            seen.append((interruption.received, handlers() == before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(None, True)]


LOOP = """
import sys, time
from truedrift.training.signals import StopSignal

with StopSignal() as interruption:
    for step in range(1000):
        print("step", flush=True)
        time.sleep(0.05)
        print("end of step", flush=True)
        if interruption.received:
            print("saved", flush=True)
            sys.exit(interruption.exit_status)
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_a_loop_ends_at_the_end_of_its_step(start, number, status):
    """Signal 9 is the control: nothing is saved."""
    loop = start(LOOP)
    loop.wait_for("step")
    os.kill(loop.pid, number)
    assert loop.wait() == status
    assert (loop.lines[-2:] == ["end of step", "saved"]) is (number != signal.SIGKILL)
    assert len(loop.lines) < 100


WITH_CHILD = """
import os, time
from truedrift.training.signals import StopSignal

with StopSignal() as interruption:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"!")  # before that Python forgets signals, as pending ones of the parent
        for _ in range(1000):
            time.sleep(0.01)
        os._exit(0)
    os.read(reader, 1)
    os.kill(child, {number})
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), interruption.received)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_forked_worker_still_dies_of_the_signal(start, number):
    process = start(WITH_CHILD.format(number=int(number)))
    assert process.wait() == 0, process.errors
    assert process.lines == [f"{-number} None"]


def test_a_step_that_waits_is_not_broken_off():
    with StopSignal() as interruption:
        started = time.monotonic()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        time.sleep(0.2)
        assert time.monotonic() - started >= 0.2
        assert interruption.received == "SIGTERM"
