"""Pickle → safetensors: a process of its own reads the file; this one never does.

The reader (`reader.py`) runs in a fresh isolated interpreter (`-I`: no PYTHONPATH, no user's packages) with an almost
empty environment, in an empty directory, under limits of time, memory and written bytes. It loads with
`weights_only=True`, which refuses every call but those that rebuild tensors, and writes safetensors. Only a file that
then opens as such gets the wanted name, in one step: a failure leaves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from truedrift.errors import UserError
from truedrift.quarantine import reader

PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
SAFE = ".safetensors"
LIMIT_SECONDS = 900
SCALARS = "scalars"
"""The entry of the safetensors file's metadata with everything that was no tensor, as JSON: {dotted name: value}."""
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_DO = "save its state_dict() again, with tensors and plain numbers alone"


def convert_pickle(source: Path, target: Path) -> None:
    """Write the tensors of `source` (.pt, .pth …) to the safetensors file `target`, under dotted names.

    A safetensors file as `source` is checked and copied.
    """
    require_checkpoint(source)
    with _scratch_directory(target) as room:
        tensors = room / "tensors.safetensors"
        if source.suffix == SAFE:
            shutil.copyfile(source, tensors)
        else:
            _run_reader(source.resolve(), tensors)
        _require_safe(tensors, source)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(tensors, target)


def require_checkpoint(source: Path) -> None:
    """A file that may be one, by its name."""
    allowed = f"allowed is a file that ends in {', '.join((*PICKLES, SAFE))}"
    if source.is_dir():
        raise UserError(f"{str(source)!r} is a directory", allowed, "name the file in it")
    if not source.exists():
        raise UserError(f"{str(source)!r} does not exist", allowed, "check its name")
    if source.suffix not in (*PICKLES, SAFE):
        came = f"ends in {source.suffix!r}" if source.suffix else "has no extension"
        raise UserError(f"{str(source)!r} {came}", allowed, "take a checkpoint of PyTorch")


@contextlib.contextmanager
def _scratch_directory(target: Path) -> Iterator[Path]:
    """An empty directory on the file system of `target`, gone afterwards."""
    place = next(parent for parent in target.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".truedrift-", ignore_cleanup_errors=True) as room:
            yield Path(room)
    except OSError as error:
        came = f"{str(target)!r} cannot be written ({error.strerror})"
        raise UserError(came, "allowed is a file in a directory that can be written", "name another one") from None


def _run_reader(source: Path, tensors: Path) -> None:
    """Run the reader; whatever it complains of, or ends by, is one line."""
    size = str(source.stat().st_size)
    command = [sys.executable, "-I", reader.__file__, str(source), str(tensors), size, *_output_paths()]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TMPDIR": str(tensors.parent)}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=tensors.parent,
            env=environment,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _reject(source, f"reading took longer than {LIMIT_SECONDS} seconds") from None
    if done.returncode:
        raise _reject(source, _rejection(done))


def _output_paths() -> list[str]:
    """Where torch and safetensors are installed: not always where an isolated interpreter looks."""
    found = (find_spec(name) for name in ("torch", "safetensors"))
    return [str(Path(spec.origin).parents[1]) for spec in found if spec is not None and spec.origin is not None]


def _rejection(done: subprocess.CompletedProcess[bytes]) -> str:
    """The reader's own words if it found any."""
    try:
        return str(json.loads(done.stdout)["complaint"])
    except (ValueError, KeyError, TypeError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return " ".join((f"its reader ended with status {done.returncode}", *last))


def _reject(source: Path, why: str) -> ValueError:
    came = f"{str(source)!r} cannot be read as weights ({' '.join(why.split())[:300]})"
    return UserError(came, "allowed are tensors and numbers in dictionaries, and no code", _DO)


def _require_safe(tensors: Path, source: Path) -> None:
    """The file opens as safetensors, every tensor's extent included."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  an extra

    try:
        with safe_open(tensors, framework="pt") as file:
            file.keys()
    except (SafetensorError, FileNotFoundError) as error:
        raise _reject(source, str(error)) from None
