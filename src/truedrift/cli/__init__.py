"""The command `truedrift`: parse, call, print.

Exit status 0 on success, 2 on a user's mistake (one line on stderr: what came; what is allowed; what to do), 1 on a
failure of ours (with its traceback, to be reported), 130 on an interrupt, 75 where a signal asked to save and stop.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from truedrift import __version__
from truedrift.cli.stop import Stop
from truedrift.validation import Mistake

NEEDED = ("huggingface_hub", "matplotlib", "numba", "numpy", "PIL", "rich", "safetensors", "scipy", "sklearn", "tyro")
"""The packages of the `app` extra."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    _never_fail_to_print()
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _complain("interrupted", status=130)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"truedrift {__version__}")
        return 0
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        come = f"{', '.join(missing)} not installed"
        return _complain(f"error: {come}; the command needs the app extra; run pip install 'truedrift[app]'", status=2)
    from truedrift.cli.parsing import parse  # noqa: PLC0415  needs the extra

    try:
        job = parse(arguments).prepare()
    except ValueError as mistake:
        return _complain(f"error: {mistake}", status=2)
    except OSError as error:
        return _complain(_of_a_path(error), status=2)
    return _done(job)


def _done(job: Callable[[], str]) -> int:
    try:
        said = job()
        if said:
            print(said)
    except Mistake as mistake:  # seen only while working: no room for such weights, say
        return _complain(f"error: {mistake}", status=2)
    except Stop as stop:
        return _complain(str(stop), status=stop.status)
    except OSError as error:
        # Without a path there is none that the user could have meant.
        return _failed(error) if error.filename is None else _complain(_of_a_path(error), status=2)
    except Exception as failure:
        return _failed(failure)
    return 0


def _failed(failure: Exception) -> int:
    traceback.print_exception(failure)
    return _complain(f"failure: {type(failure).__name__}: {failure}; please report the lines above", status=1)


def _of_a_path(error: OSError) -> str:
    """A path that the system refuses, and that nothing below had words for."""
    path = repr(str(error.filename))
    shown = path if len(path) <= 200 else f"{path[:100]}…{path[-20:]}"
    return f"error: {shown} cannot be used ({error.strerror}); allowed is a path that can be opened; name another one"


def _complain(message: str, *, status: int) -> int:
    print("truedrift:", " ".join(message.split()), file=sys.stderr)
    return status


def _never_fail_to_print() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # τ on a terminal that has no Greek
