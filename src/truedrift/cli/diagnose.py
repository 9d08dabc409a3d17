"""`truedrift diagnose FILE`: estimate the bias of the centroids of a user's own weights, distances or features."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from truedrift.axes import Tensor
from truedrift.bias import diagnose
from truedrift.bias.diagnose_inputs import read_settings, require_no_generated, require_source
from truedrift.cli.options.studies import Diagnose
from truedrift.data.array_files import ONLY, read_arrays
from truedrift.errors import UserError, list_names
from truedrift.records.store import writable_directory
from truedrift.report.screens import diagnosis_summary

KEYS = ("weights", "distances", "queries", "references")
SINGLE_ARRAYS = ("weights", "distances")


def prepare(command: Diagnose) -> Callable[[], str]:
    """Read the file, and check the names of its arrays and the options."""
    arrays = _read_named_arrays(command.file, command.array, command.largest_gigabytes)
    require_source(**arrays)
    if "weights" not in arrays:
        if not command.tau:
            problem = f"{str(command.file)!r} holds {' and '.join(arrays)}, and --tau is missing"
            raise UserError(problem, "tau must be one or more positive numbers", "add for example --tau 0.05")
        read_settings(command.tau, command.n, command.want, command.kernel, command.seed, command.generated)
    else:
        require_no_generated(command.generated)
    if command.out is not None:
        if command.out.is_dir():
            raise UserError(f"--out {str(command.out)!r} is a directory", "must be a file", "pass a file in it")
        writable_directory(command.out.parent)
    return partial(_run, command, arrays)


def _run(command: Diagnose, arrays: dict[str, Tensor]) -> str:
    """Diagnose the arrays; return the text to print."""
    found = diagnose(
        **arrays,
        tau=command.tau,
        n=command.n,
        wanted=command.want,
        kernel=command.kernel,
        seed=command.seed,
        generated=command.generated,
    )
    if command.out is not None:
        command.out.write_text(found.to_json() + "\n", encoding="utf-8")  # may be a device, such as /dev/stdout
    return found.to_json() if command.json else diagnosis_summary(found, command.file.name)


def _read_named_arrays(file: Path, array: str | None, largest_gigabytes: float) -> dict[str, Tensor]:
    """Read the arrays that `diagnose` takes, by name. The array of a .npy file gets the name `array`."""
    arrays = read_arrays(file, largest_gigabytes=largest_gigabytes)
    if ONLY in arrays and file.suffix == ".npy":
        if array is None:
            problem = f"{str(file)!r} holds one array without a name"
            allowed = f"must be {' or '.join(SINGLE_ARRAYS)}"
            raise UserError(problem, allowed, f"add --array {' or --array '.join(SINGLE_ARRAYS)}")
        return {array: arrays[ONLY]}
    if array is not None:
        problem = f"--array {array} was given, but the arrays of {str(file)!r} have names"
        raise UserError(problem, "--array is for .npy files", "leave it out")
    known = {name: arrays[name] for name in KEYS if name in arrays}
    if not known:
        raise UserError(
            f"{str(file)!r} holds {list_names(arrays)}",
            "must hold weights, or distances, or queries and references",
            "save the arrays under these names",
        )
    return known
