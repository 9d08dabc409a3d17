"""The manifest of a checkpoint: schema version, run, step, facts, and of each file its length and sha256.

It carries the sha256 of itself, H(canonical JSON of everything else), and its bytes must be the canonical ones. So no
bit of it can change unnoticed, not even one that JSON does not care for (1e-05 and 1E-05 are the same number).

Whether a checkpoint is as it was saved: each file against its length and sha256, the manifest against its own.

Hidden files (a file browser's, a network file system's) are ignored; any other file that the manifest does not list is
damage, since nobody can say what belongs to the run then.

Checkpoints: RUN/checkpoints/step-00000123/{generator,ema,optimizer,…}.safetensors and manifest.json.

Saving, in this order, so that a crash at any moment leaves the checkpoints before it as they were:

    .writing-step-00000123-<pid>/   every file written and fsynced, then the directory fsynced
    → step-00000123/                renamed, the directory above fsynced
    → manifest.json                 written under a temporary name, fsynced, renamed, its directory fsynced

A directory without a manifest is no checkpoint. The loader verifies everything (`verification.py`); what is not as it
was saved is passed over for the checkpoint before it, and told. One process at a time saves to a directory (`lock.py`).

Which checkpoints stay: the newest k, every m-th step, the best one; and always the newest that is valid.

A checkpoint is removed manifest first. Without one it is no checkpoint, so that a crash in the middle leaves nothing
that could be taken for a damaged one; the rest of it goes at the next call.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truedrift.errors import UserError
from truedrift.storage import make_directory, remove_tree, sync_directory, write_atomically, write_fsync

MANIFEST = "manifest.json"
SCHEMA = 1
"""Raised whenever an older truedrift could not read the files."""

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")
"""What a file may be called: nothing that leads out of the directory, nothing hidden."""


@dataclass(frozen=True)
class Entry:
    """What a file was when it was saved."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of."""

    run: str
    step: int
    facts: Mapping[str, Any]
    files: Mapping[str, Entry]


def entry_of(content: bytes) -> Entry:
    """Length and sha256 of a file's content."""
    return Entry(hashlib.sha256(content).hexdigest(), len(content))


def is_file_name(name: str) -> bool:
    """Whether a checkpoint may have a file of that name."""
    return _FILE.fullmatch(name) is not None


def render(manifest: Manifest) -> bytes:
    """The manifest as the bytes of its file. Raises ValueError or TypeError over facts that are not JSON."""
    content = {
        "schema": SCHEMA,
        "run": manifest.run,
        "step": manifest.step,
        "facts": dict(manifest.facts),
        "files": {name: {"sha256": entry.sha256, "bytes": entry.bytes} for name, entry in manifest.files.items()},
    }
    return _canonical({**content, "sha256": _digest(content)})


def parse(content: bytes) -> Manifest:
    """The manifest of these bytes. Raises ValueError, which says what is wrong with them."""
    document = _document(content)
    digest = document.pop("sha256", None)
    if digest != _digest(document) or _canonical({**document, "sha256": digest}) != content:
        raise ValueError("its content is not what was saved")
    if document.get("schema") != SCHEMA:
        raise ValueError(f"its schema version is {document.get('schema')!r} and this truedrift reads {SCHEMA}")
    return _manifest(document)


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _manifest(document: dict[str, Any]) -> Manifest:
    try:
        files = {name: Entry(str(of["sha256"]), int(of["bytes"])) for name, of in document["files"].items()}
        manifest = Manifest(str(document["run"]), int(document["step"]), dict(document["facts"]), files)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError("it lacks what a manifest holds") from None
    for name in files:
        if not is_file_name(name):
            raise ValueError(f"it lists {name!r}, which is no name of a file of a checkpoint")
    return manifest


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


STEP_DIRECTORY = re.compile(r"step-(\d{8,})")


class DamagedCheckpoint(UserError):
    """A checkpoint that is not as it was saved; `what` says in which way."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{str(path)!r} is no valid checkpoint ({what}); allowed is one with its manifest and every file as saved; "
            "take another one of the run"
        )
        self.what = what


def directory_name(step: int) -> str:
    """The name of the checkpoint of that step."""
    return f"step-{step:08d}"


def is_valid(path: Path, run: str | None) -> bool:
    """Whether everything in the directory is as it was saved, by that run or by any (None)."""
    try:
        for _ in verify_files(path, verify_manifest(path, run)):
            pass
    except DamagedCheckpoint:
        return False
    return True


def verify_manifest(path: Path, run: str | None) -> Manifest:
    """The manifest in the directory, of that run and of the step that the directory is named after."""
    content = _read(path, MANIFEST)
    try:
        manifest = parse(content)
    except ValueError as error:
        raise DamagedCheckpoint(path, f"{MANIFEST} cannot be used: {error}") from None
    if run is not None and manifest.run != run:
        raise DamagedCheckpoint(path, f"{MANIFEST} is of run {manifest.run!r} and not of {run!r}")
    if STEP_DIRECTORY.fullmatch(path.name) and path.name != directory_name(manifest.step):
        raise DamagedCheckpoint(path, f"{MANIFEST} is of step {manifest.step}")
    return manifest


def verify_files(path: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file, one in memory at a time."""
    for name in sorted(_list_files(path) - manifest.files.keys() - {MANIFEST}):
        raise DamagedCheckpoint(path, f"{name} is there and was not saved with it")
    for name, saved in manifest.files.items():
        content = _read(path, name)
        if len(content) != saved.bytes:
            raise DamagedCheckpoint(path, f"{name} has {len(content)} bytes instead of {saved.bytes}")
        if entry_of(content) != saved:
            raise DamagedCheckpoint(path, f"the content of {name} is not what was saved")
        yield name, content


def _list_files(path: Path) -> set[str]:
    try:
        return {name for name in os.listdir(path) if not name.startswith(".")}
    except OSError as error:
        raise DamagedCheckpoint(path, f"it cannot be listed, {error.strerror}") from None


def _read(path: Path, name: str) -> bytes:
    try:
        return (path / name).read_bytes()
    except FileNotFoundError:
        raise DamagedCheckpoint(path, f"{name} is missing") from None
    except OSError as error:
        raise DamagedCheckpoint(path, f"{name} cannot be read, {error.strerror}") from None


__all__ = [
    "Checkpoint",
    "CheckpointNotSaved",
    "DamagedCheckpoint",
    "LatestCheckpoint",
    "directory_name",
    "latest_checkpoint",
    "load",
    "save",
    "steps",
]

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
class LatestCheckpoint:
    """The newest valid checkpoint, and one sentence for each newer one that is not valid."""

    checkpoint: Checkpoint | None
    passed_over: tuple[str, ...]


class CheckpointNotSaved(UserError):
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
        raise UserError(came, "allowed is a directory that can be read", "check its name and rights") from None
    numbers = (int(match[1]) for name in names if (match := STEP_DIRECTORY.fullmatch(name)))
    return tuple(sorted(step for step in numbers if directory_name(step) in names))


def latest_checkpoint(directory: Path, *, run: str, map_location: str | torch.device = "cpu") -> LatestCheckpoint:
    """The newest checkpoint of the run that is as it was saved, if there is one."""
    passed_over: list[str] = []
    for step in reversed(step_directories(directory)):
        path = directory / directory_name(step)
        try:
            return LatestCheckpoint(load(path, run=run, map_location=map_location), tuple(passed_over))
        except DamagedCheckpoint as damage:
            passed_over.append(f"checkpoint {path.name} was passed over: {damage.what}")
    return LatestCheckpoint(None, tuple(passed_over))


def latest_valid_step(directory: Path, *, run: str | None = None) -> int | None:
    """The step of the newest checkpoint that is as it was saved, found without making tensors."""
    return next((step for step in reversed(steps(directory)) if is_valid(directory / directory_name(step), run)), None)


def load(path: Path, *, run: str | None, map_location: str | torch.device = "cpu") -> Checkpoint:
    """The checkpoint in that directory, every file verified; of that run, or of any (None). Raises `Damaged`."""
    manifest = verify_manifest(path, run)
    tensors = {
        name.removesuffix(_SUFFIX): _deserialize(path, name, content, map_location)
        for name, content in verify_files(path, manifest)
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
    with _remove_on_failure(temporary):
        files = _write_tensors(temporary, checkpoint.tensors)
        manifest = _render_manifest(Manifest(run, checkpoint.step, checkpoint.facts, files))
        remove_tree(path, first=MANIFEST)  # what a crash or a damage left of this step
        os.replace(temporary, path)
    with _remove_on_failure(path):
        sync_directory(path.parent)
        write_atomically(path / MANIFEST, manifest)


@contextlib.contextmanager
def _remove_on_failure(path: Path) -> Iterator[None]:
    """Whatever is raised, remove what was written there. What cannot be removed is no checkpoint or a valid one."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(path, first=MANIFEST)
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
            raise UserError(
                f"a file of the checkpoint is {stem!r}", "allowed are letters, digits, _ and -", "rename it"
            )
        content = _serialize(named)
        files[name] = entry_of(content)
        write_fsync(temporary / name, content)
    sync_directory(temporary)
    return files


def _render_manifest(manifest: Manifest) -> bytes:
    try:
        return render(manifest)
    except (TypeError, ValueError) as error:
        came = f"the facts of the checkpoint are not JSON ({error})"
        raise UserError(came, "allowed are finite numbers, strings, lists and dictionaries", "convert them") from None


def _serialize(named: Mapping[str, Tensor]) -> bytes:
    """Contiguous copies on the CPU, each with a memory of its own: safetensors refuses what is shared."""
    copies = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in named.items()
    }
    return _safetensors().torch.save(copies)


def _deserialize(path: Path, name: str, content: bytes, where: str | torch.device) -> dict[str, Tensor]:
    safetensors = _safetensors()
    try:
        return {key: tensor.to(where) for key, tensor in safetensors.torch.load(content).items()}
    except safetensors.SafetensorError as error:
        raise DamagedCheckpoint(path, f"{name} is not a safetensors file: {error}") from None


def _safetensors() -> Any:
    try:
        import safetensors.torch  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        came = "checkpoints need safetensors, which is not installed"
        raise UserError(came, "allowed is no other format", "run pip install 'truedrift[train]'") from None
    return safetensors


def _not_saved(directory: Path, step: int, error: OSError) -> CheckpointNotSaved:
    previous = latest_valid_step(directory)
    intact = "there is none before it" if previous is None else f"the one before it, step {previous}, is intact"
    do = {
        **dict.fromkeys(_NO_ROOM, "free some space"),
        **dict.fromkeys(_NO_RIGHT, "make the directory writable"),
    }.get(error.errno or 0, "check the disk")
    return CheckpointNotSaved(
        f"the checkpoint of step {step} cannot be written to {str(directory)!r} ({error.strerror}); {intact}; "
        f"{do} and run the same command again"
    )


def prune(directory: Path, *, keep_last: int, keep_every: int | None, best: int | None) -> tuple[int, ...]:
    """Remove the checkpoints that need not stay, and return their steps, ascending.

    Stay: the newest `keep_last`, steps that are multiples of `keep_every`, the step `best`, and the newest valid one
    even where `keep_last` newer ones are damaged.
    """
    _require_counts(keep_last, keep_every)
    complete = steps(directory)
    wanted = {best, *complete[-keep_last:], *(step for step in complete if keep_every and step % keep_every == 0)}
    superfluous = [step for step in complete if step not in wanted]
    if superfluous:  # only then is it worth reading files
        valid = latest_valid_step(directory)
        superfluous = [step for step in superfluous if step != valid]
    for step in (*superfluous, *_unfinished_saves(directory, complete)):
        _remove(directory / directory_name(step))
    return tuple(superfluous)


def _require_counts(keep_last: int, keep_every: int | None) -> None:
    if keep_last < 1:
        raise UserError(f"keep_last is {keep_last}", "allowed is a whole number of at least 1", "keep at least one")
    if keep_every is not None and keep_every < 1:
        came = f"keep_every is {keep_every}"
        raise UserError(came, "allowed is None or a whole number of at least 1", "count it in optimizer steps")


def _unfinished_saves(directory: Path, complete: tuple[int, ...]) -> list[int]:
    """What a crash left without a manifest; not after the newest checkpoint, where one may just be written."""
    return [step for step in step_directories(directory) if step not in complete and complete and step < complete[-1]]


def _remove(path: Path) -> None:
    try:
        remove_tree(path, first=MANIFEST)
    except OSError as error:
        came = f"the checkpoint {str(path)!r} cannot be removed ({error.strerror})"
        allowed = "allowed is a directory that can be written"
        raise UserError(came, allowed, "make it writable and run the same command again") from None
