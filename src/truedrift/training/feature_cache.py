"""A long file written piece by piece, so that a process that is killed on the way loses minutes of it and not hours.

Beside the file stands a number: how many pieces are on the disk. A later call cuts off what came after them and goes on
from there. A disk that is full is left as it was.

Features of every image and of its mirror image, encoded once, kept on disk, read where they are needed.

With a frozen encoder and mirroring as the only change of an image there are two views of each, so that the encoder has
nothing to do for positives after the first run. The file is an array [views, N, Σ D_s] of float32, memory-mapped: a
step reads the rows that it draws. Its name is a hash of the encoder's weights and options, the images, the precision
and this version; beside it stands the hash of its content, which is compared before it is used. One process makes it,
and others that want the same one wait for it; one that was killed on the way is continued.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from truedrift._version import __version__
from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, gather_samples
from truedrift.data.samples import Samples, to_model_range
from truedrift.encoders.base import Encoder, stack_padded
from truedrift.errors import UserError
from truedrift.progress import Progress
from truedrift.storage import write_atomically
from truedrift.training.batch import Encode, to_device

SYNC_EVERY = 32
"""Pieces between two times that the disk is waited for."""


def write_resumable(path: Path, sizes: Sequence[int], piece: Callable[[int], bytes]) -> None:
    """Write `piece(k)`, of `sizes[k]` bytes, for every k; those that an earlier call brought to the disk are there."""
    done = _complete_pieces(path, sizes)
    try:
        with path.open("r+b" if done else "w+b") as file:
            file.truncate(sum(sizes[:done]))
            file.seek(0, os.SEEK_END)
            try:
                while done < len(sizes):
                    file.write(piece(done))
                    done += 1
                    if done % SYNC_EVERY == 0:
                        _write_marker(path, file, done)
            finally:
                _write_marker(path, file, done)
    except OSError:
        remove(path)
        raise


def remove(path: Path) -> None:
    """The file and the number beside it, if they are there."""
    path.unlink(missing_ok=True)
    _number(path).unlink(missing_ok=True)


def _complete_pieces(path: Path, sizes: Sequence[int]) -> int:
    """How many pieces an earlier call left; none where number and file do not agree."""
    try:
        done, there = int(_number(path).read_text()), path.stat().st_size
    except (OSError, ValueError):
        return 0
    return done if 0 <= done <= len(sizes) and sum(sizes[:done]) <= there else 0


def _write_marker(path: Path, file: BufferedRandom, done: int) -> None:
    """The number is written after the pieces that it counts."""
    file.flush()
    os.fsync(file.fileno())
    write_atomically(_number(path), f"{done}\n".encode())


def _number(path: Path) -> Path:
    return path.with_name(f"{path.name}.pieces")


if TYPE_CHECKING:
    import numpy as np

AT_ONCE = 256
"""Images encoded at a time: always the same, so that the bits do not depend on a run's batch."""


class CachedFeatures:
    """Looks features up in the file."""

    def __init__(self, path: Path, dimensions: Sequence[int], device: torch.device) -> None:
        import numpy as np  # noqa: PLC0415  an extra

        self.views: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        self.dimensions, self.device = list(dimensions), device

    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        rows = self.views[batch.mirrored.long().numpy(), batch.indices.numpy()]
        features = to_device(torch.from_numpy(rows), self.device)
        return stack_padded(features.split(self.dimensions, -1)).transpose(0, 1)


def build_feature_cache(
    samples: Samples,
    encoder: Encoder,
    encode: Encode,
    *,
    directory: Path,
    precision: str,
    device: torch.device,
    progress: Progress,
) -> Path:
    """The file of all features; it is made if it is not there, or not whole."""
    name = "/".join((__version__, encoder.fingerprint(), samples.digest(), precision, str(samples.flips)))
    path = directory / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npy"
    if _is_complete(path):
        return path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _exclusive(path) as alone:
            if not _is_complete(path):  # others may have made it meanwhile
                _build(path, _Views(samples, encoder, encode, device, progress), alone)
    except OSError as error:
        raise UserError(
            f"features of {samples.name} cannot be kept in {str(directory)!r} ({error.strerror or error})",
            "that needs a directory with room for them",
            "set TRUEDRIFT_CACHE to another one, or engine.cached_positives=false",
        ) from None
    return path


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[bool]:
    """One process at a time; the kernel ends the turn of one that dies.

    Where files cannot be locked it is False: two may make the same file, each under a name of its own.
    """
    with path.with_suffix(".lock").open("a") as file:
        yield _locked(file)


def _locked(file: io.TextIOWrapper) -> bool:
    try:
        import fcntl  # noqa: PLC0415  Windows has none

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return False
    return True


def _is_complete(path: Path) -> bool:
    beside = path.with_suffix(".sha256")
    return path.exists() and beside.exists() and beside.read_text(errors="replace").strip() == _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(path: Path, views: _Views, alone: bool) -> None:
    """Under another name, then renamed, then its hash beside it."""
    begun = path.with_suffix(".writing" if alone else f".writing-{os.getpid()}")
    try:
        write_resumable(begun, views.sizes(), views.piece)
        digest = _sha256(begun)
        begun.replace(path)
        path.with_suffix(".sha256").write_text(digest + "\n")
    except BaseException:
        if not alone:  # nobody would go on with it
            remove(begun)
        raise
    remove(begun)


@dataclass(frozen=True)
class _Views:
    """The file in pieces: its header, then a batch of one view after another."""

    samples: Samples
    encoder: Encoder
    encode: Encode
    device: torch.device
    progress: Progress

    def sizes(self) -> list[int]:
        """Bytes of every piece."""
        row = 4 * sum(self.encoder.dimensions)
        return [len(self._header()), *(row * len(indices) for _, indices in self._batches())]

    def piece(self, number: int) -> bytes:
        if number == 0:
            return self._header()
        view, indices = self._batches()[number - 1]
        features = self._features(view, torch.tensor(indices)).cpu().numpy().astype("<f4").tobytes()
        total = len(self.samples)
        self.progress(f"features of {self.samples.name}", view * total + indices[-1] + 1, self._count() * total)
        return features

    def _count(self) -> int:
        return 2 if self.samples.flips else 1

    def _batches(self) -> list[tuple[int, range]]:
        total = len(self.samples)
        starts = range(0, total, AT_ONCE)
        return [(view, range(total)[start : start + AT_ONCE]) for view in range(self._count()) for start in starts]

    def _header(self) -> bytes:
        import numpy as np  # noqa: PLC0415  an extra

        shape = (self._count(), len(self.samples), sum(self.encoder.dimensions))
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return header.getvalue()

    @torch.no_grad()
    def _features(self, view: int, indices: Tensor) -> Tensor:
        batch = Batch(indices, torch.full(indices.shape, bool(view)))
        values = to_model_range(gather_samples(self.samples.values, batch).to(self.device))
        return torch.cat([f.float() for f in self.encode(values)], -1)
