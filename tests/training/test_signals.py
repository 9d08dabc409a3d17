"""`StopSignal`: stop at the end of a step with the documented exit status, and restore the current_handlers."""

import os
import signal
import threading
import time

import pytest

from truedrift.training import EXIT_STATUS, EXIT_STATUS_KEYBOARD, StopSignal

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def current_handlers():
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize(
    ("number", "name", "status"),
    [(signal.SIGTERM, "SIGTERM", 75), (signal.SIGUSR1, "SIGUSR1", 75), (signal.SIGINT, "SIGINT", 130)],
)
def test_signal_sets_name_and_exit_status(number, name, status):
    with StopSignal() as stop:
        assert (stop.received, stop.exit_status) == (None, None)
        os.kill(os.getpid(), number)
        assert stop.received == name
        assert stop.exit_status == status
    assert stop.received == name  # still available after the loop


def test_exit_status_values():
    assert EXIT_STATUS == os.EX_TEMPFAIL == 75
    assert EXIT_STATUS_KEYBOARD == 128 + signal.SIGINT == 130


def test_second_sigint_raises_keyboard_interrupt():
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == "SIGINT"


def test_first_signal_is_reported():
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # a second SIGTERM changes nothing
        os.kill(os.getpid(), signal.SIGINT)  # the first SIGINT only sets the flag
        assert (stop.received, stop.exit_status) == ("SIGTERM", EXIT_STATUS)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_handlers_are_restored(error):
    def own_handler(number, frame):
        pass

    original = signal.signal(signal.SIGUSR1, own_handler)
    try:
        before = current_handlers()
        try:
            with StopSignal():
                assert all(inside != outside for inside, outside in zip(current_handlers(), before, strict=True))
                if error:
                    raise error
        except ZeroDivisionError:
            pass
        assert current_handlers() == before
        assert own_handler in before
    finally:
        signal.signal(signal.SIGUSR1, original)


def test_nested_stop_signals():
    before = current_handlers()
    with StopSignal() as outer:
        with StopSignal() as inner:
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
    assert (inner.received, outer.received) == ("SIGUSR1", "SIGTERM")
    assert current_handlers() == before


def test_ignored_sigint_stays_ignored_but_other_signals_do_not():
    originals = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        with StopSignal() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.received is None
            os.kill(os.getpid(), signal.SIGUSR1)
            assert stop.received == "SIGUSR1"
        assert current_handlers() == [signal.SIG_IGN] * 3
    finally:
        for number, handler in originals.items():
            signal.signal(number, handler)


def test_no_effect_outside_the_main_thread():
    before, results = current_handlers(), []

    def work():
        with StopSignal() as stop:
            results.append((stop.received, current_handlers() == before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [(None, True)]


LOOP_SCRIPT = """
import sys, time
from truedrift.training import StopSignal

with StopSignal() as stop:
    for step in range(1000):
        print("step", flush=True)
        time.sleep(0.05)
        print("end of step", flush=True)
        if stop.received:
            print("saved", flush=True)
            sys.exit(stop.exit_status)
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_loop_stops_at_the_end_of_a_step(start, number, status):
    """Negative control: after SIGKILL nothing is saved."""
    loop = start(LOOP_SCRIPT)
    loop.wait_for("step")
    os.kill(loop.pid, number)
    assert loop.wait() == status
    assert (loop.lines[-2:] == ["end of step", "saved"]) is (number != signal.SIGKILL)
    assert len(loop.lines) < 100


def test_signal_does_not_interrupt_a_sleeping_step():
    with StopSignal() as stop:
        started = time.monotonic()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        time.sleep(0.2)
        assert time.monotonic() - started >= 0.2
        assert stop.received == "SIGTERM"
