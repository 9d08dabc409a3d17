"""Pickle → safetensors, in a separate process.

The reader (`reader.py`) runs in a fresh isolated interpreter (`-I`: no PYTHONPATH, no user packages) with an almost
empty environment, in an empty directory, with limits on time, memory and written bytes. It ends when this process ends.
It loads with `weights_only=True`, which allows only the calls that rebuild tensors, and writes safetensors. The result
is renamed to the target only if it opens as safetensors, so a failure leaves no file.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from truedrift.errors import UserError, error_text, require_file
from truedrift.quarantine import reader
from truedrift.storage import scratch_directory

PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
SAFE = ".safetensors"
LIMIT_SECONDS = 900
SCALARS = "scalars"
"""The metadata entry with all values that are not tensors, as JSON: {dotted name: value}."""
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def convert_pickle(source: Path, target: Path) -> None:
    """Convert a checkpoint to safetensors.

    Args:
        source: The checkpoint (.pt, .pth, …). A safetensors file is checked and copied.
        target: The safetensors file to write. Nested entries get dotted names.

    Raises:
        UserError: If the source is not a checkpoint of tensors and plain values, or the target cannot be written.
    """
    require_checkpoint(source)
    with _scratch_directory(target) as scratch:
        tensors = scratch / "tensors.safetensors"
        if source.suffix == SAFE:
            shutil.copyfile(source, tensors)
        else:
            _run_reader(source.resolve(), tensors)
        _require_safetensors(tensors, source)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(tensors, target)


def require_checkpoint(source: Path) -> None:
    """Require that the file exists and has the extension of a checkpoint.

    Args:
        source: A path that ends in .pt, .pth, .bin, .ckpt, .pkl or .safetensors. The file is not opened.

    Raises:
        UserError: If it does not exist, is a directory, or has another extension.
    """
    require_file(source, (*PICKLES, SAFE))


@contextlib.contextmanager
def _scratch_directory(target: Path) -> Iterator[Path]:
    """Make an empty directory on the file system of `target`, and remove it afterwards."""
    existing = next(parent for parent in target.absolute().parents if parent.exists())
    try:
        with scratch_directory(existing, ".truedrift-") as scratch:
            yield scratch
    except OSError as error:
        problem = f"{str(target)!r} cannot be written ({error.strerror})"
        raise UserError(problem, "must be a file in a writable directory", "name another one") from None


def _run_reader(source: Path, tensors: Path) -> None:
    """Run the reader with an almost empty environment, and report its failure in one line."""
    size = str(source.stat().st_size)
    command = [sys.executable, "-I", reader.__file__, str(source), str(tensors), size, *_package_paths()]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TMPDIR": str(tensors.parent)}
    try:
        status, output, errors = _run(command, tensors.parent, environment)
    except subprocess.TimeoutExpired:
        raise _unreadable(source, f"reading took longer than {LIMIT_SECONDS} seconds") from None
    if status:
        raise _unreadable(source, _failure_reason(status, output, errors))


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, bytes, bytes]:
    """Run a command that ends when its standard input ends, which is when this process ends; return what it printed."""
    with (
        (folder / "output").open("w+b") as output,
        (folder / "errors").open("w+b") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=errors, cwd=folder, env=environment
        ) as process,
    ):
        try:
            status = process.wait(LIMIT_SECONDS)
        finally:
            process.kill()
        return status, (folder / "output").read_bytes(), (folder / "errors").read_bytes()


def _package_paths() -> list[str]:
    """Return where torch and safetensors are installed. An isolated interpreter may not look there."""
    specs = (find_spec(name) for name in ("torch", "safetensors"))
    return [str(Path(spec.origin).parents[1]) for spec in specs if spec is not None and spec.origin is not None]


def _failure_reason(status: int, output: bytes, errors: bytes) -> str:
    """Return the reader's message, or else its status and the last line of its errors."""
    try:
        return str(json.loads(output)["error"])
    except (ValueError, KeyError, TypeError):
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return " ".join((f"its reader ended with status {status}", *last))


def _unreadable(source: Path, reason: str) -> UserError:
    return UserError(
        f"{str(source)!r} cannot be read as weights ({error_text(reason)})",
        "must hold tensors and numbers in dictionaries, and no code",
        "save its state_dict() again, with tensors and plain numbers only",
    )


def _require_safetensors(tensors: Path, source: Path) -> None:
    """Check that the file opens as safetensors, which also checks the extent of every tensor."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  an extra

    try:
        with safe_open(tensors, framework="pt") as file:
            file.keys()
    except (SafetensorError, FileNotFoundError) as error:
        raise _unreadable(source, str(error)) from None
