"""Command line entry point: parse the arguments, prepare the command, run it and print its output.

Exit status:
    0   success.
    1   a failure of truedrift. One line on stderr names the file that holds the traceback.
    2   a user's error: wrong arguments (tyro prints the message), or one line on stderr with problem, allowed and fix.
    75  a signal asked the run to save and stop, or another process is busy with it; run the same command again.
    130 interrupted from the keyboard.
"""

import atexit
import errno
import gc
import os
import pkgutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from truedrift._version import __version__
from truedrift.errors import UserError, printable, suggest_name

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
REQUIRED_PACKAGES = (
    *("filelock", "huggingface_hub", "jinja2", "matplotlib", "numba", "numpy"),
    *("PIL", "rich", "safetensors", "scipy", "sklearn", "tyro"),
)
"""The packages of the `app` extra, except tensorboard, which is optional."""

COMMANDS: dict[str, str] = {
    "demo": "truedrift.cli.options.studies:Demo",
    "explore": "truedrift.cli.options.studies:Explore",
    "train": "truedrift.cli.options.models:Train",
    "sample": "truedrift.cli.options.models:Sample",
    "evaluate": "truedrift.cli.options.models:Evaluate",
    "train-encoder": "truedrift.cli.options.models:TrainEncoder",
    "evaluate-encoder": "truedrift.cli.options.models:EvaluateEncoder",
    "recipes": "truedrift.cli.options.tools:Recipes",
    "data": "truedrift.cli.options.tools:Data",
    "bias": "truedrift.cli.options.studies:Bias",
    "diagnose": "truedrift.cli.options.studies:Diagnose",
    "reproduce": "truedrift.cli.options.studies:Reproduce",
    "report": "truedrift.cli.options.studies:Report",
    "export": "truedrift.cli.options.sharing:Export",
    "push": "truedrift.cli.options.sharing:Push",
    "serve": "truedrift.cli.options.sharing:Serve",
    "convert": "truedrift.cli.options.models:Convert",
    "doctor": "truedrift.cli.options.tools:Doctor",
    "completion": "truedrift.cli.options.tools:Completion",
}
"""The options of each command. They are imported on use, and need no torch."""

HELP = """\
usage: truedrift COMMAND [OPTIONS]    truedrift COMMAND --help    truedrift --version

One-step generative models trained by drifting, with centroids whose minibatch bias is corrected.

commands:
  demo             Compute the exact bias and the push on data, train digits with three fields, and write one HTML page.
  explore          Write an interactive page on the bias of a minibatch centroid and on matched references.
  train            Train a one-step generator by drifting; the same command resumes it.
  sample           Draw samples from a run or pretrained weights: a grid, a folder of images or an .npz file.
  evaluate         Evaluate a run: FID, KID, precision, recall and Inception Score, each with its protocol.
  train-encoder    Train an encoder on images, without labels or with them; the same command resumes it.
  evaluate-encoder Evaluate encoders: k nearest neighbors and a linear probe on their features, in one table.
  recipes          List the recipes, or print one of them in full.
  data             List data sets and weights, or download them into the cache and verify their hashes.
  bias             Compute the exact bias of the centroid of n references, for a named toy or your own pool.
  diagnose         Estimate the bias of your centroid, and the n you need, from your own features or weights.
  reproduce        Compute and draw a figure or table of the paper, or an additional study.
  report           Write figures, tables and one HTML page from existing records and runs.
  export           Write a folder for the Hugging Face Hub: weights, config, model card and samples; optionally ONNX.
  push             Upload a model to the Hugging Face Hub as USER/NAME.
  serve            Open a local page that draws samples of a model: class, seed and strength; save them as PNG.
  convert          Convert a published DriftDiT checkpoint (.pt, .pth, .safetensors) to config.json + safetensors.
  doctor           Print versions, devices, threads, caches and extras, in a form to paste into an issue.
  completion       Print a script that completes commands, options and names in bash or zsh.

examples:
  truedrift demo
  truedrift explore
  truedrift sample pretrained:digits
  truedrift bias four-modes --tau 0.1 --n 8 64 512
  truedrift diagnose features.npz --tau 0.02 0.05 0.2 --n 64
  truedrift train digits
  truedrift sample runs/digits-… --classes 3 7
  truedrift evaluate runs/digits-…
  truedrift data fetch cifar10
  truedrift reproduce fig:bias_loglog
  truedrift report runs/fig_bias_loglog-cpu
  truedrift export pretrained:digits my-digits
  truedrift serve pretrained:digits
  truedrift convert checkpoint.pt"""


class Command(Protocol):
    """A frozen dataclass of options."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and the inputs (`UserError`), and return the work, which returns the text to print."""


class CommandExit(Exception):
    """End a command early with a message on stderr and an exit status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after `truedrift`; `sys.argv[1:]` if None.

    Returns:
        The exit status.
    """
    # When the process ends, its memory is free anyway. Searching it for garbage first takes half a second.
    atexit.register(gc.freeze)
    # Print "?" instead of failing on a terminal that cannot show, for example, τ.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Run the command.
    try:
        output = _run(list(sys.argv[1:] if arguments is None else arguments))
        if output:
            _print_output(output)
        return 0
    except SystemExit as stop:  # tyro has printed the help (0), or what is wrong with the options (2)
        return int(stop.code or 0)
    except KeyboardInterrupt:
        message, status = "interrupted", 130
    except UserError as error:
        message, status = f"error: {error}", 2
    except CommandExit as stop:
        message, status = str(stop), stop.status
    except Exception as failure:
        if isinstance(failure, OSError) and failure.errno in DISK_FULL:
            message, status = f"error: {failure.strerror}; the output needs more space; free some and run again", 2
        elif isinstance(failure, OSError) and _is_user_path(failure.filename):
            problem = f"cannot use {str(failure.filename)!r} ({failure.strerror})"
            message, status = f"error: {problem}; must be a path that can be opened; pass another one", 2
        else:
            message, status = f"failure: {_save_traceback(failure)}", 1
    # Report a problem in one line. Of several processes, each says which one it is.
    rank = f"rank {os.environ.get('RANK', '?')}: " if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
    # One write: torchrun starts Python without buffers, and two processes may print at the same time.
    print(f"truedrift: {rank}{printable(' '.join(message.split()))}\n", end="", file=sys.stderr)
    return status


def _run(arguments: list[str]) -> str:
    """Parse the arguments, check them and do the work; return the text to print."""
    if arguments[:1] == ["--version"]:
        return f"truedrift {__version__}"
    for word in arguments:
        if "\0" in word:
            raise UserError(f"{word[:60]!r} holds the character NUL", "no path or name has it", "remove it")
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise UserError(
            f"{', '.join(missing)} not installed",
            "the command needs the app extra",
            "run pip install 'truedrift[app]'",
        )
    work = parse(arguments).prepare()
    return work()


def parse(arguments: list[str]) -> Command:
    """Return the command with its options.

    Args:
        arguments: The words after `truedrift`, starting with the name of the command.

    Returns:
        The command. Its inputs are not checked yet, see `Command.prepare`.

    Raises:
        UserError: If the first word is not a command.
        SystemExit: After `--help` (0), or after tyro has printed what is wrong with the options (2).
    """
    name, *options = arguments or [""]
    if name in ("-h", "--help"):
        print(HELP)
        raise SystemExit(0)
    if name not in COMMANDS:
        problem = f"{name!r} is not a command" if name else "no command was given"
        fix = suggest_name(name, COMMANDS, "run truedrift --help")
        raise UserError(problem, f"available: {', '.join(COMMANDS)}", fix)

    import tyro  # noqa: PLC0415  part of the app extra

    return tyro.cli(command_class(name), prog=f"truedrift {name}", args=options)


def command_class(name: str) -> type[Command]:
    """Import and return the class of a command."""
    return cast("type[Command]", pkgutil.resolve_name(COMMANDS[name]))


def _print_output(output: str) -> None:
    """Print the text. A reader that has closed the pipe, such as `head`, does not want the rest."""
    try:
        print(printable(output), flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again when it exits
        if not isinstance(error, BrokenPipeError):
            raise


def _is_user_path(name: object) -> bool:
    """Return whether an error is about a path outside the package, which only the user can have given."""
    package = Path(__file__).parents[1]
    return isinstance(name, (str, os.PathLike)) and not Path(name).absolute().is_relative_to(package)


def _save_traceback(failure: Exception) -> str:
    """Write the traceback to a temporary file; return a message that names it."""
    descriptor, path = tempfile.mkstemp(prefix="truedrift-traceback-", suffix=".txt")
    with open(descriptor, "w", encoding="utf-8") as file:
        traceback.print_exception(failure, file=file)
    problem = f"{type(failure).__name__}: {failure}"
    return f"{problem}; this is a bug in truedrift; please report it with the traceback in {path}"
