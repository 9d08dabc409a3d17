"""Checkpoints: RUN/checkpoints/step-00000123/{generator,ema,optimizer,…}.safetensors and manifest.json.

Save, in this order, so that a crash at any moment leaves the earlier checkpoints intact:

    .writing-step-00000123/         write and fsync every file, then fsync the directory
    → step-00000123/                rename, fsync the parent directory
    → manifest.json                 write under a temporary name, fsync, rename, fsync its directory

A directory without a manifest is not a checkpoint. The manifest holds the schema version, the run, the step, facts, and
the length and sha256 of each file. It carries its own sha256: that of its bytes, with zeros in the place of the hash.

Loading verifies everything. A damaged checkpoint is skipped with a message, and the one before it is used.

Pruning keeps the newest k checkpoints, every m-th step, the best one, and always the newest valid one. It removes the
manifest first, so that a crash in between leaves a directory without a manifest, which the next call removes.

One process at a time saves to a directory (`run_directory.lock_run`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truedrift.errors import UserError, error_text, read_number, short_repr
from truedrift.options import LARGEST_INTEGER
from truedrift.storage import make_directory, read_regular, remove_tree, sync_directory, write_atomically, write_new

# ---- Formats ----

MANIFEST = "manifest.json"
SCHEMA = 2
"""Increased whenever another version could not read the files."""

_SUFFIX = ".safetensors"
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")
"""Allowed names of files. No name leads out of the directory, and no name is hidden."""
_STEP_NAME = re.compile(r"step-(\d{8,})")


START_FACTS: Mapping[str, Any] = {"metrics_offset": 0, "skipped": 0, "best": None, "metrics": {}}
"""The facts that every checkpoint has, with their values at the start of a run."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run after `step` optimizer steps.

    `tensors` is file stem → name → tensor, such as {"generator": …, "ema": …, "optimizer": …}. Values are restored bit
    for bit and contiguous, in no particular order of names. `facts` is JSON; tuples are restored as lists. Loading
    requires the names of `START_FACTS` among them.
    """

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    facts: Mapping[str, Any] = field(default_factory=lambda: START_FACTS)


def _file_entry(content: bytes) -> dict[str, Any]:
    """Return length and sha256 of a file, as they stand in the manifest."""
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json."""

    run: str
    step: int
    facts: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    """File name → sha256 and bytes."""

    def to_bytes(self) -> bytes:
        """Serialize. Raises ValueError or TypeError if the facts are not JSON."""
        content = {
            "schema": SCHEMA,
            "run": self.run,
            "step": self.step,
            "facts": dict(self.facts),
            "files": dict(self.files),
            "sha256": _NO_HASH.decode(),
        }
        text = json.dumps(content, indent=1, allow_nan=False).encode()
        return text.removesuffix(_NO_HASH + _END) + _hash(text) + _END

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Parse and verify. Raises ValueError with a description of the problem."""
        # The hash at the end is that of the other bytes.
        start = len(content) - len(_NO_HASH + _END)
        if content[start:] != _hash(content[:start] + _NO_HASH + _END) + _END:
            raise ValueError("its content is not what was saved")
        try:
            document = json.loads(content)
            json.dumps(document, allow_nan=False)  # Python also reads NaN, Infinity and 1e999
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON") from None
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
        # The fields are those of this version.
        if document.get("schema") != SCHEMA:
            raise ValueError(f"its schema version is {document.get('schema')!r} and this truedrift reads {SCHEMA}")
        _require_fields(document, _FIELDS, "field")
        _require_fields({"metrics_sha256": None, "energy": [], **document["facts"]}, _FACTS, "fact")
        for name, entry in document["files"].items():
            if not _FILE_NAME.fullmatch(name):
                raise ValueError(f"it lists {name!r}, which is not an allowed file name")
            _require_fields(entry if isinstance(entry, dict) else {}, _FILE_FIELDS, f"field of {name}")
        return cls(**{name: document[name] for name in _FIELDS})


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_INTEGER


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_best(value: Any) -> bool:
    """Return whether it is None, or step and FID of an evaluation."""
    return value is None or (_is_object(value) and _is_count(value.get("step")) and _is_number(value.get("fid")))


def _is_number(value: Any) -> bool:
    return math.isfinite(read_number(value))


def _is_matrix(value: Any) -> bool:
    """Return whether it is a list of rows of the same number of finite numbers."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return False
    return len({len(row) for row in value}) <= 1 and all(_is_number(each) for row in value for each in row)


_Fields = Mapping[str, Callable[[Any], bool]]
_FIELDS: _Fields = {"run": _is_text, "step": _is_count, "facts": _is_object, "files": _is_object}
_FILE_FIELDS: _Fields = {"sha256": _is_text, "bytes": _is_count}
_FACTS: _Fields = {
    "metrics_offset": _is_count,
    "metrics_sha256": lambda value: value is None or _is_text(value),
    "skipped": _is_count,
    "best": _is_best,
    "metrics": _is_object,
    "energy": _is_matrix,
}
"""What `RunProgress.at` reads. Older checkpoints have no metrics_sha256 and no energy."""


def _require_fields(tree: Mapping[str, Any], fields: _Fields, kind: str) -> None:
    """Require that every field is there and allowed. Raises ValueError with a description of the problem."""
    for name, is_allowed in fields.items():
        if name not in tree:
            raise ValueError(f"it lacks the {kind} {name!r}")
        if not is_allowed(tree[name]):
            raise ValueError(f"the {kind} {name!r} is {short_repr(tree[name])}")


_NO_HASH, _END = b"0" * 64, b'"\n}'
"""The end of a manifest without its hash."""


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def directory_name(step: int) -> str:
    """Return the name of the checkpoint of that step."""
    return f"step-{step:08d}"


def steps(directory: Path) -> tuple[int, ...]:
    """Return the steps of the checkpoints with a manifest, ascending. They are not verified."""
    return tuple(
        step for step in _step_directories(directory) if (directory / directory_name(step) / MANIFEST).exists()
    )


def _step_directories(directory: Path) -> tuple[int, ...]:
    """Return the steps of all directories with the name of a checkpoint, with or without a manifest, ascending."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UserError(
            f"the checkpoints in {str(directory)!r} cannot be listed ({error.strerror})",
            "must be a readable directory",
            "check its name and permissions",
        ) from None
    numbers = (int(match[1]) for name in names if (match := _STEP_NAME.fullmatch(name)))
    return tuple(sorted(step for step in numbers if directory_name(step) in names))


# ---- Verify ----


class DamagedCheckpoint(UserError):
    """A checkpoint that is not as it was saved.

    Args:
        path: The directory of the checkpoint.
        damage: How it differs from what was saved, for example "manifest.json is missing".
    """

    def __init__(self, path: Path, damage: str) -> None:
        super().__init__(
            f"{str(path)!r} is not a valid checkpoint ({damage})",
            "its manifest and every file must be as they were saved",
            "use another checkpoint of the run",
        )
        self.damage = damage


def is_valid(path: Path, run: str | None) -> bool:
    """Return whether the directory is a checkpoint, as it was saved, of that run or of any run (None)."""
    try:
        for _ in _verify_files(path, _verify_manifest(path, run)):
            pass
    except DamagedCheckpoint:
        return False
    return True


def latest_valid_step(directory: Path, *, run: str | None = None) -> int | None:
    """Return the step of the newest valid checkpoint, without making tensors."""
    return next((step for step in reversed(steps(directory)) if is_valid(directory / directory_name(step), run)), None)


def latest_facts(directory: Path, *, run: str) -> Mapping[str, Any] | None:
    """Return the facts of the newest checkpoint whose manifest is intact. Its tensors are not read."""
    for step in reversed(_step_directories(directory)):
        with contextlib.suppress(DamagedCheckpoint):
            return _verify_manifest(directory / directory_name(step), run).facts
    return None


def runs(directory: Path) -> set[str]:
    """Return the ids of the runs in all readable manifests."""
    found = set()
    for step in steps(directory):
        with contextlib.suppress(DamagedCheckpoint):
            found.add(_verify_manifest(directory / directory_name(step), None).run)
    return found


def _verify_manifest(path: Path, run: str | None) -> Manifest:
    """Read the manifest; it must be of that run and of the step in the directory's name."""
    content = _read_file(path, MANIFEST)
    try:
        manifest = Manifest.from_bytes(content)
    except ValueError as error:
        raise DamagedCheckpoint(path, f"{MANIFEST} cannot be used: {error}") from None
    if run is not None and manifest.run != run:
        raise DamagedCheckpoint(path, f"{MANIFEST} is of run {manifest.run!r} and not of {run!r}")
    if _STEP_NAME.fullmatch(path.name) and path.name != directory_name(manifest.step):
        raise DamagedCheckpoint(path, f"{MANIFEST} is of step {manifest.step}")
    return manifest


def _verify_files(path: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each verified file, with one file in memory at a time."""
    # Hidden files of file browsers and network file systems are ignored. Other unlisted files are damage.
    try:
        names = {name for name in os.listdir(path) if not name.startswith(".")}
    except OSError as error:
        raise DamagedCheckpoint(path, f"it cannot be listed, {error.strerror}") from None
    for name in sorted(names - manifest.files.keys() - {MANIFEST}):
        raise DamagedCheckpoint(path, f"{name} is there and was not saved with it")
    for name, saved in manifest.files.items():
        content = _read_file(path, name)
        if len(content) != saved["bytes"]:
            raise DamagedCheckpoint(path, f"{name} has {len(content)} bytes instead of {saved['bytes']}")
        if _file_entry(content) != saved:
            raise DamagedCheckpoint(path, f"the content of {name} is not what was saved")
        yield name, content


def _read_file(path: Path, name: str) -> bytes:
    try:
        return read_regular(path / name)
    except FileNotFoundError:
        raise DamagedCheckpoint(path, f"{name} is missing") from None
    except OSError as error:
        raise DamagedCheckpoint(path, f"{name} cannot be read, {error.strerror}") from None


# ---- Load ----


@dataclass(frozen=True, eq=False)
class LatestCheckpoint:
    """The newest valid checkpoint, and one message per newer checkpoint that was skipped."""

    checkpoint: Checkpoint | None
    skipped: tuple[str, ...]


def latest_checkpoint(
    directory: Path,
    *,
    run: str,
    map_location: str | torch.device = "cpu",
    use: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> LatestCheckpoint:
    """Load the newest valid checkpoint of a run, if there is one.

    Args:
        directory: The directory of the checkpoints.
        run: The id of the run that they must belong to.
        map_location: The device of the tensors.
        use: Called with the checkpoint. If it raises KeyError, RuntimeError, TypeError or ValueError, the content does
            not fit the run, and the checkpoint before it is tried.

    Returns:
        The checkpoint or None, and one message per newer checkpoint that was skipped.
    """
    skipped: list[str] = []
    for step in reversed(_step_directories(directory)):
        path = directory / directory_name(step)
        try:
            found = load(path, run=run, map_location=map_location)
            _try_use(path, found, use)
            return LatestCheckpoint(found, tuple(skipped))
        except DamagedCheckpoint as error:
            skipped.append(f"checkpoint {path.name} was skipped: {error.damage}")
    return LatestCheckpoint(None, tuple(skipped))


def _try_use(path: Path, checkpoint: Checkpoint, use: Callable[[Checkpoint], None]) -> None:
    try:
        use(checkpoint)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(path, f"its content does not fit the run: {error_text(error)}") from None


def load(path: Path, *, run: str | None, map_location: str | torch.device = "cpu") -> Checkpoint:
    """Load and verify the checkpoint in the directory.

    Args:
        path: The directory of the checkpoint.
        run: The id of the run that it must belong to; None for any run.
        map_location: The device of the tensors.

    Raises:
        DamagedCheckpoint: If anything is not as it was saved.
    """
    manifest = _verify_manifest(path, run)
    tensors = {
        name.removesuffix(_SUFFIX): _deserialize(path, name, content, map_location)
        for name, content in _verify_files(path, manifest)
    }
    return Checkpoint(manifest.step, tensors, manifest.facts)


def _deserialize(path: Path, name: str, content: bytes, device: str | torch.device) -> dict[str, Tensor]:
    safetensors = _import_safetensors()
    try:
        return {key: tensor.to(device) for key, tensor in safetensors.torch.load(content).items()}
    except safetensors.SafetensorError as error:
        raise DamagedCheckpoint(path, f"{name} is not a safetensors file: {error}") from None


def _import_safetensors() -> Any:
    try:
        import safetensors.torch  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise UserError(
            "safetensors is not installed",
            "checkpoints need it",
            "run pip install 'truedrift[train]'",
        ) from None
    return safetensors


# ---- Save ----


class CheckpointNotSaved(UserError):
    """A checkpoint could not be written; the earlier ones are intact."""


def save(directory: Path, checkpoint: Checkpoint, *, run: str) -> Path:
    """Write the checkpoint below `directory`; a valid one of the same step stays as it is.

    When this returns, the checkpoint survives a crash of the machine. If it raises, nothing of the attempt is left.

    Returns:
        The directory of the checkpoint.

    Raises:
        CheckpointNotSaved: If the disk is full or read-only.
    """
    path = directory / directory_name(checkpoint.step)
    if is_valid(path, run):
        return path
    try:
        make_directory(directory)
        remove_unfinished(directory)
        _write(path, checkpoint, run)
    except OSError as error:
        raise _not_saved(directory, checkpoint.step, error) from None
    return path


def _write(path: Path, checkpoint: Checkpoint, run: str) -> None:
    temporary = path.with_name(f".writing-{path.name}")
    # Files and manifest content.
    with _remove_on_failure(temporary):
        files = _write_tensors(temporary, checkpoint.tensors)
        try:
            manifest = Manifest(run, checkpoint.step, checkpoint.facts, files).to_bytes()
        except (TypeError, ValueError) as error:
            raise UserError(
                f"the facts of the checkpoint are not JSON ({error})",
                "must be finite numbers, strings, lists and dictionaries",
                "convert them",
            ) from None
        remove_tree(path, first=MANIFEST)  # a damaged or unfinished checkpoint of this step
        os.replace(temporary, path)
    # The manifest makes the directory a checkpoint.
    with _remove_on_failure(path):
        sync_directory(path.parent)
        write_atomically(path / MANIFEST, manifest)


def _write_tensors(temporary: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Any]]:
    """Serialize, hash and write the files, one at a time."""
    temporary.mkdir()
    entries = {}
    for stem, named in tensors.items():
        name = f"{stem}{_SUFFIX}"
        if not _FILE_NAME.fullmatch(name):
            raise UserError(
                f"a file of the checkpoint has the name {stem!r}",
                "must consist of letters, digits, _ and -",
                "rename it",
            )
        content = _serialize(named)
        entries[name] = _file_entry(content)
        write_new(temporary / name, content)
    sync_directory(temporary)
    return entries


def _serialize(named: Mapping[str, Tensor]) -> bytes:
    """Serialize contiguous copies on the CPU. Each copy has its own memory, since safetensors refuses shared memory."""
    copies = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in named.items()
    }
    return _import_safetensors().torch.save(copies)


@contextlib.contextmanager
def _remove_on_failure(path: Path) -> Iterator[None]:
    """Remove the directory on any exception. If that fails, what is left is a valid checkpoint or none at all."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(path, first=MANIFEST)
        raise


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed process left: temporary directories, and checkpoints that it was removing.

    Only one process at a time saves. A checkpoint without a manifest that is older than the newest one was about to be
    removed. A newer one was about to be saved, and its step is saved again.

    Args:
        directory: The directory of the checkpoints, whose run is locked by this process.
    """
    for path in directory.glob(".writing-*"):
        remove_tree(path, first=MANIFEST)
    complete = steps(directory)
    for step in _step_directories(directory):
        if step not in complete and step < max(complete, default=0):
            _remove(directory / directory_name(step))


def _not_saved(directory: Path, step: int, error: OSError) -> CheckpointNotSaved:
    previous = latest_valid_step(directory)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        fix = "free some space"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        fix = "make the directory writable"
    else:
        fix = "check the disk"
    return CheckpointNotSaved(
        f"the checkpoint of step {step} cannot be written to {str(directory)!r} ({error.strerror})",
        "there is no earlier checkpoint" if previous is None else f"the checkpoint of step {previous} is intact",
        f"{fix} and run the same command again",
    )


def replace_facts(path: Path, facts: Mapping[str, Any], *, run: str) -> None:
    """Replace some facts of a checkpoint; its files stay as they are.

    Args:
        path: The directory of the checkpoint.
        facts: The new facts.
        run: The id of the run that it must belong to.

    Raises:
        DamagedCheckpoint: If its manifest is not as it was saved.
        OSError: If it cannot be written.
    """
    manifest = _verify_manifest(path, run)
    changed = Manifest(manifest.run, manifest.step, {**manifest.facts, **facts}, manifest.files)
    write_atomically(path / MANIFEST, changed.to_bytes())


# ---- Prune ----


def prune(directory: Path, *, keep_last: int, keep_every: int | None, best: int | None) -> tuple[int, ...]:
    """Remove the checkpoints that need not be kept.

    Args:
        directory: The directory of the checkpoints.
        keep_last: How many of the newest to keep; at least 1.
        keep_every: Keep steps that are multiples of this number.
        best: A step to keep.

    Returns:
        The removed steps, ascending. The newest valid checkpoint is kept even if `keep_last` newer ones are damaged.
    """
    complete = steps(directory)
    wanted = {best, *complete[-keep_last:], *(step for step in complete if keep_every and step % keep_every == 0)}
    removable = [step for step in complete if step not in wanted]
    if removable:  # verify files only if something would be removed
        valid = latest_valid_step(directory)
        removable = [step for step in removable if step != valid]
    for step in removable:
        _remove(directory / directory_name(step))
    remove_unfinished(directory)
    return tuple(removable)


def _remove(path: Path) -> None:
    try:
        remove_tree(path, first=MANIFEST)
    except OSError as error:
        raise UserError(
            f"the checkpoint {str(path)!r} cannot be removed ({error.strerror})",
            "must be a writable directory",
            "make it writable and run the same command again",
        ) from None
