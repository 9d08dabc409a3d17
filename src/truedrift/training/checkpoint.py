"""Checkpoints: RUN/checkpoints/step-00000123/{generator,ema,optimizer,…}.safetensors and manifest.json.

Saving, in this order, so that a crash at any moment leaves the checkpoints before it as they were:

    .writing-step-00000123-<pid>/   every file written and fsynced, then the directory fsynced
    → step-00000123/                renamed, the directory above fsynced
    → manifest.json                 written under a temporary name, fsynced, renamed, its directory fsynced

A directory without a manifest is no checkpoint. The loader verifies everything (`verification.py`); what is not as it
was saved is passed over for the checkpoint before it, and told. One process at a time saves to a directory (`lock.py`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truedrift.files import discard, make_directory, sync_directory, write_atomically, write_synced
from truedrift.training.manifest import MANIFEST, Entry, Manifest, entry_of, is_file_name, render
from truedrift.training.verification import (
    STEP_DIRECTORY,
    Damaged,
    directory_name,
    is_valid,
    verified_files,
    verified_manifest,
)
from truedrift.validation import Mistake, mistake

__all__ = ["Checkpoint", "Damaged", "Found", "NotSaved", "directory_name", "load", "newest", "save", "steps"]

_WRITING = re.compile(r"\.writing-step-\d+-(\d+)")
_SUFFIX = ".safetensors"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after `step` optimizer steps.

    `tensors` is file stem → name → tensor, such as {"generator": …, "ema": …, "optimizer": …}; values come back bit for
    bit, contiguous, in no particular order of names. `facts` is JSON and comes back as JSON gives it (tuples as lists).
    """

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Found:
    """The newest valid checkpoint, and one sentence for each newer one that is not valid."""

    checkpoint: Checkpoint | None
    passed_over: tuple[str, ...]


class NotSaved(Mistake):
    """A checkpoint could not be written; the ones before it are as they were."""


def steps(directory: Path) -> tuple[int, ...]:
    """The steps of the checkpoints that have a manifest, ascending; they are not verified."""
    return tuple(step for step in step_directories(directory) if (directory / directory_name(step) / MANIFEST).exists())


def step_directories(directory: Path) -> tuple[int, ...]:
    """The steps of everything that is called like a checkpoint, with or without a manifest, ascending."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    except OSError as error:
        came = f"the checkpoints in {str(directory)!r} cannot be listed ({error.strerror})"
        raise mistake(came, "allowed is a directory that can be read", "check its name and rights") from None
    numbers = (int(match[1]) for name in names if (match := STEP_DIRECTORY.fullmatch(name)))
    return tuple(sorted(step for step in numbers if directory_name(step) in names))


def newest(directory: Path, *, run: str, map_location: str | torch.device = "cpu") -> Found:
    """The newest checkpoint of the run that is as it was saved, if there is one."""
    passed_over: list[str] = []
    for step in reversed(step_directories(directory)):
        path = directory / directory_name(step)
        try:
            return Found(load(path, run=run, map_location=map_location), tuple(passed_over))
        except Damaged as damage:
            passed_over.append(f"checkpoint {path.name} was passed over: {damage.what}")
    return Found(None, tuple(passed_over))


def newest_valid_step(directory: Path, *, run: str | None = None) -> int | None:
    """The step of the newest checkpoint that is as it was saved, found without making tensors."""
    return next((step for step in reversed(steps(directory)) if is_valid(directory / directory_name(step), run)), None)


def load(path: Path, *, run: str | None, map_location: str | torch.device = "cpu") -> Checkpoint:
    """The checkpoint in that directory, every file verified; of that run, or of any (None). Raises `Damaged`."""
    manifest = verified_manifest(path, run)
    tensors = {
        name.removesuffix(_SUFFIX): _deserialized(path, name, content, map_location)
        for name, content in verified_files(path, manifest)
    }
    return Checkpoint(manifest.step, tensors, manifest.facts)


def save(directory: Path, checkpoint: Checkpoint, *, run: str) -> Path:
    """Write the checkpoint below `directory` and return its own directory; one that is there and valid stays.

    When this returns, the checkpoint outlives a crash of the machine. Raises `NotSaved` where the disk is full or
    read-only. Whatever is raised, nothing of the attempt is left.
    """
    path = directory / directory_name(checkpoint.step)
    if is_valid(path, run):
        return path
    try:
        make_directory(directory)
        _remove_leftovers(directory)
        _write(path, checkpoint, run)
    except OSError as error:
        raise _not_saved(directory, checkpoint.step, error) from None
    return path


def _write(path: Path, checkpoint: Checkpoint, run: str) -> None:
    temporary = path.with_name(f".writing-{path.name}-{os.getpid()}")
    with _removed_on_failure(temporary):
        files = _write_tensors(temporary, checkpoint.tensors)
        manifest = _rendered(Manifest(run, checkpoint.step, checkpoint.facts, files))
        discard(path, first=MANIFEST)  # what a crash or a damage left of this step
        os.replace(temporary, path)
    with _removed_on_failure(path):
        sync_directory(path.parent)
        write_atomically(path / MANIFEST, manifest)


@contextlib.contextmanager
def _removed_on_failure(path: Path) -> Iterator[None]:
    """Whatever is raised, remove what was written there. What cannot be removed is no checkpoint or a valid one."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            discard(path, first=MANIFEST)
        raise


def _remove_leftovers(directory: Path) -> None:
    """Temporary directories of processes that have ended. One of our own number was left by an earlier process."""
    for name in os.listdir(directory):
        match = _WRITING.fullmatch(name)
        if match and (int(match[1]) == os.getpid() or not _is_alive(int(match[1]))):
            shutil.rmtree(directory / name)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # os.kill would end it there; the run's lock says that nobody else writes here
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _write_tensors(temporary: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Entry]:
    """Each file serialized, hashed in memory and written, one at a time."""
    temporary.mkdir()
    files = {}
    for stem, named in tensors.items():
        name = f"{stem}{_SUFFIX}"
        if not is_file_name(name):
            raise mistake(f"a file of the checkpoint is {stem!r}", "allowed are letters, digits, _ and -", "rename it")
        content = _serialized(named)
        files[name] = entry_of(content)
        write_synced(temporary / name, content)
    sync_directory(temporary)
    return files


def _rendered(manifest: Manifest) -> bytes:
    try:
        return render(manifest)
    except (TypeError, ValueError) as error:
        came = f"the facts of the checkpoint are not JSON ({error})"
        raise mistake(came, "allowed are finite numbers, strings, lists and dictionaries", "convert them") from None


def _serialized(named: Mapping[str, Tensor]) -> bytes:
    """Contiguous copies on the CPU, each with a memory of its own: safetensors refuses what is shared."""
    copies = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in named.items()
    }
    return _safetensors().torch.save(copies)


def _deserialized(path: Path, name: str, content: bytes, where: str | torch.device) -> dict[str, Tensor]:
    safetensors = _safetensors()
    try:
        return {key: tensor.to(where) for key, tensor in safetensors.torch.load(content).items()}
    except safetensors.SafetensorError as error:
        raise Damaged(path, f"{name} is not a safetensors file: {error}") from None


def _safetensors() -> Any:
    try:
        import safetensors.torch  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        came = "checkpoints need safetensors, which is not installed"
        raise mistake(came, "allowed is no other format", "run pip install 'truedrift[train]'") from None
    return safetensors


def _not_saved(directory: Path, step: int, error: OSError) -> NotSaved:
    previous = newest_valid_step(directory)
    intact = "there is none before it" if previous is None else f"the one before it, step {previous}, is intact"
    do = {
        **dict.fromkeys(_NO_ROOM, "free some space"),
        **dict.fromkeys(_NO_RIGHT, "make the directory writable"),
    }.get(error.errno or 0, "check the disk")
    return NotSaved(
        f"the checkpoint of step {step} cannot be written to {str(directory)!r} ({error.strerror}); {intact}; "
        f"{do} and run the same command again"
    )
