"""A job that ends before its end, with one line and an exit status of its own.

Arguments → the chosen command, with every mistake as one line.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from truedrift import __version__
from truedrift.errors import UserError

NEEDED = ("huggingface_hub", "matplotlib", "numba", "numpy", "PIL", "rich", "safetensors", "scipy", "sklearn", "tyro")
"""The packages of the `app` extra."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    _replace_unprintable()
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _print_error("interrupted", status=130)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"truedrift {__version__}")
        return 0
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        come = f"{', '.join(missing)} not installed"
        return _print_error(
            f"error: {come}; the command needs the app extra; run pip install 'truedrift[app]'", status=2
        )
    try:
        job = parse(arguments).prepare()
    except ValueError as mistake:
        return _print_error(f"error: {mistake}", status=2)
    except OSError as error:
        return _print_error(_path_error(error), status=2)
    return _run_job(job)


def _run_job(job: Callable[[], str]) -> int:
    try:
        said = job()
        if said:
            print(said)
    except UserError as mistake:  # seen only while working: no room for such weights, say
        return _print_error(f"error: {mistake}", status=2)
    except CommandExit as stop:
        return _print_error(str(stop), status=stop.status)
    except OSError as error:
        # Without a path there is none that the user could have meant.
        return _report_failure(error) if error.filename is None else _print_error(_path_error(error), status=2)
    except Exception as failure:
        return _report_failure(failure)
    return 0


def _report_failure(failure: Exception) -> int:
    traceback.print_exception(failure)
    return _print_error(f"failure: {type(failure).__name__}: {failure}; please report the lines above", status=1)


def _path_error(error: OSError) -> str:
    """A path that the system refuses, and that nothing below had words for."""
    path = repr(str(error.filename))
    shown = path if len(path) <= 200 else f"{path[:100]}…{path[-20:]}"
    return f"error: {shown} cannot be used ({error.strerror}); allowed is a path that can be opened; name another one"


def _print_error(message: str, *, status: int) -> int:
    print("truedrift:", " ".join(message.split()), file=sys.stderr)
    return status


def _replace_unprintable() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # τ on a terminal that has no Greek


class CommandExit(Exception):
    """What to say and the status to exit with."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Job(Protocol):
    """Does the work and returns what to print."""

    def __call__(self) -> str: ...


class Command(Protocol):
    """A frozen dataclass of options."""

    def prepare(self) -> Job:
        """Check everything that the user gave (ValueError), then hand over the work."""
        ...


COMMANDS: dict[str, str] = {
    "demo": "The exact bias study, the digits trained with Standard and ABC and judged, all on one page.",
    "train": "Train a one-step generator by drifting; the same command resumes it.",
    "sample": "Samples of a run, or of a folder of weights: a grid, a folder of images or an .npz file.",
    "evaluate": "Judge the samples of a run: FID, KID, precision, recall and Inception Score, each with its protocol.",
    "recipes": "List the recipes, or print one of them in full.",
    "data": "List data sets and weights, or fetch them into the cache, hash-checked.",
    "bias": "How biased is the centroid of n references? Exactly, for a named toy or your own pool.",
    "diagnose": "How biased is your centroid, and what n do you need? On your own features or weights.",
    "reproduce": "Compute a figure or table of the paper, or a study beyond it, and draw it.",
    "report": "Draw figures, write tables, and tell it all on one HTML page, from records and runs alone.",
    "convert": "Bring a published DriftDiT checkpoint (.pt, .pth, .safetensors) over to config.json + safetensors.",
}
"""What each does, in a line. It is imported when it is asked for: nobody who samples waits for the laboratory."""


def command(name: str) -> type[Command]:
    """The command of that name."""
    found: type[Command] = getattr(import_module(f"truedrift.cli.{name}"), name.capitalize())
    return found


def help_text() -> str:
    """What `truedrift --help` prints."""
    return "\n".join(
        (
            "usage: truedrift COMMAND [OPTIONS]    truedrift COMMAND --help    truedrift --version",
            "",
            "One-step generative models trained by drifting, with centroids whose minibatch bias is corrected.",
            "",
            "commands:",
            *(f"  {name:12}{line}" for name, line in COMMANDS.items()),
            "",
            "examples:",
            "  truedrift demo",
            "  truedrift bias four-modes --tau 0.1 --n 8 64 512",
            "  truedrift diagnose features.npz --tau 0.02 0.05 0.2 --n 64",
            "  truedrift train digits",
            "  truedrift sample runs/digits-… --classes 3 7",
            "  truedrift evaluate runs/digits-…",
            "  truedrift data fetch cifar10",
            "  truedrift reproduce fig:bias_loglog",
            "  truedrift report runs/fig_bias_loglog-cpu",
            "  truedrift convert checkpoint.pt",
        )
    )


def parse(arguments: list[str]) -> Command:
    """The command with its options; ValueError if they are wrong. `--help` prints and exits."""
    name, *options = arguments or [""]
    if name in ("-h", "--help"):
        print(help_text())
        raise SystemExit(0)
    if name not in COMMANDS:
        came = f"{name!r} is not a command" if name else "no command was given"
        raise UserError(came, f"allowed are: {', '.join(COMMANDS)}", "run truedrift --help")
    return _options(name, options)


def _options(name: str, options: list[str]) -> Command:
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            import tyro  # noqa: PLC0415  needs the extra

            return tyro.cli(command(name), prog=f"truedrift {name}", args=options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_one_line(errors.getvalue())) from None


def _one_line(box: str) -> str:
    """The sections of the box that tyro draws (in plain characters where need be), joined by semicolons."""
    text = re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯]", " ", box)
    _title, *sections = re.split(r"[─-]{5,}", text)
    said = (" ".join(section.split()).rstrip(".") for section in sections)
    return "; ".join(filter(None, said))
