"""Features of every image and of its mirror image, encoded once, stored on disk and looked up by each step.

With a frozen encoder and mirroring as the only augmentation, each image has two views, so the encoder has nothing to do
for positives after the first run. The file is an array [views, N, M], memory-mapped: a step reads only the rows that it
draws. It is float32, and float16 for feature maps. With "pyramid" the maps are stored, which are smaller than the
groups, and pooled after reading. The file name is a hash of the encoder's weights and options, the images, the
precision and the version. The file `.sha256` holds the hash of its content, which is verified before use.
One process builds the file, and others that need it wait.

The file is written in pieces, and the file `.pieces` holds the number and the hash of those on disk, so a process that
is killed loses minutes of work and not hours: the next one continues after the last counted piece. After a write error,
such as that of a full disk, the unfinished file is removed.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock

from truedrift._version import __version__
from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, gather_samples
from truedrift.data.samples import Samples, to_model_range
from truedrift.encoders.base import Encoder
from truedrift.errors import UserError
from truedrift.progress import Progress
from truedrift.storage import write_atomically
from truedrift.training.batch import Encode, flatten_groups, to_device

SYNC_EVERY = 32
"""Pieces between two waits for the disk."""


def write_resumable(path: Path, sizes: Sequence[int], piece: Callable[[int], bytes]) -> str:
    """Write `piece(k)`, of `sizes[k]` bytes, for every k, and return the sha256 of all bytes.

    Pieces that an earlier call wrote are not computed again if they are as they were written.
    """
    done, digest = _complete_pieces(path, sizes)
    try:
        with path.open("r+b" if done else "w+b") as file:
            file.truncate(sum(sizes[:done]))
            file.seek(0, os.SEEK_END)
            try:
                while done < len(sizes):
                    content = piece(done)
                    file.write(content)
                    digest.update(content)
                    done += 1
                    if done % SYNC_EVERY == 0:
                        _write_count(path, file, done, digest.hexdigest())
            finally:
                _write_count(path, file, done, digest.hexdigest())
    except OSError:
        remove_unfinished(path)
        raise
    return digest.hexdigest()


def remove_unfinished(path: Path) -> None:
    """Remove the unfinished file and its count of pieces, if they exist."""
    path.unlink(missing_ok=True)
    _count_path(path).unlink(missing_ok=True)


def _complete_pieces(path: Path, sizes: Sequence[int]) -> tuple[int, Any]:
    """Return how many pieces an earlier call wrote, and their sha256 so far; 0 if count, hash and file do not agree."""
    digest = hashlib.sha256()
    try:
        count, expected = _count_path(path).read_text(errors="replace").split()
        done = int(count)
        with path.open("rb") as file:
            for size in sizes[: max(done, 0)]:
                digest.update(file.read(size))
    except (OSError, ValueError):
        return 0, hashlib.sha256()
    if 0 < done <= len(sizes) and digest.hexdigest() == expected:  # a shorter file has another hash
        return done, digest
    return 0, hashlib.sha256()


def _write_count(path: Path, file: BufferedRandom, done: int, sha256: str) -> None:
    """Write the number and the hash of the pieces, after the pieces themselves."""
    file.flush()
    os.fsync(file.fileno())
    write_atomically(_count_path(path), f"{done} {sha256}\n".encode())


def _count_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.pieces")


if TYPE_CHECKING:
    import numpy as np

DTYPES = {"<f2": 2, "<f4": 4}
"""Bytes per number of the formats of a file."""

FORMAT = "channels last"
"""Part of the key of a file: how the numbers of an image are ordered."""

AT_ONCE = 256
"""Images encoded at a time. It is fixed, so that the features do not depend on the batch size of a run."""


class CachedFeatures:
    """Features of positives, read from the file.

    Args:
        path: The file that `build_feature_cache` returned. It is memory-mapped.
        encoder: The encoder, which pools feature maps if the file holds them.
        device: The device to copy the features to.
    """

    def __init__(self, path: Path, encoder: Encoder, device: torch.device) -> None:
        import numpy as np  # noqa: PLC0415  an extra

        self.views: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        self.encoder, self.device = encoder, device

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Float[Tensor, "rows F"]:
        rows = self.views[batch.mirrored.long().numpy(), batch.indices.numpy()]
        return flatten_groups(self.encoder.read_stored(to_device(torch.from_numpy(rows), self.device).float()))


def build_feature_cache(
    samples: Samples,
    encoder: Encoder,
    encode: Encode,
    *,
    directory: Path,
    precision: str,
    device: torch.device,
    progress: Progress,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Return the file of all features; build it if it is missing or damaged.

    Args:
        samples: The images.
        encoder: The encoder, whose fingerprint and dimensions describe the file.
        encode: `encoder.encode_stored` as a function that computes in the precision of the run.
        directory: Where the file is. It is made if it is missing.
        precision: The precision of the run, part of the key of the file.
        device: Where features are computed.
        progress: Called after every batch of 256 images.
        notify: Called with a message on the size of the file before it is built.

    Returns:
        A .npy file [views, N, M], float32 or float16, with what `encoder.encode_stored` computes. There are two views
        if images may be mirrored, else one.

    Raises:
        UserError: If the disk has too little space, or the file cannot be written.
    """
    name = "/".join((__version__, FORMAT, encoder.fingerprint(), samples.digest(), precision, str(samples.flips)))
    path = directory / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npy"
    if _is_complete(path):
        return path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), fallback_to_soft=False):  # wait until no other process builds it
            if not _is_complete(path):  # another process may have built it meanwhile
                views = _Views(samples, encoder, encode, device, progress)
                size = sum(views.sizes())
                free = _require_space(path, size, samples.name)
                if notify is not None:
                    place = f"{format_size(size)} in {path.parent}, which has {format_size(free)} left"
                    notify(f"encoding {samples.name} once: {place}")
                _build(path, views)
    except OSError as error:
        raise UserError(
            f"features of {samples.name} cannot be cached in {str(directory)!r} ({error.strerror or error})",
            "must be a writable directory with enough free space",
            "set TRUEDRIFT_CACHE to another directory, or set engine.cached_positives=false",
        ) from None
    return path


def _require_space(path: Path, size: int, name: str) -> int:
    """Require free space on the disk for the part of the file that is not yet written; return the free bytes."""
    unfinished = path.with_suffix(".writing")
    written = unfinished.stat().st_size if unfinished.exists() else 0
    free = shutil.disk_usage(path.parent).free
    if size - written > free:
        raise UserError(
            f"features of {name} take {format_size(size)} and {str(path.parent)!r} has {format_size(free)} left",
            "must fit on the disk",
            "set TRUEDRIFT_CACHE to another directory, choose fewer taps, or set engine.cached_positives=false",
        )
    return free


def format_size(size: int) -> str:
    """Write a number of bytes.

    Example:
        >>> format_size(2_350_000_000), format_size(4_000)
        ('2.4 GB', '0.0 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _is_complete(path: Path) -> bool:
    hash_path = path.with_suffix(".sha256")
    return path.exists() and hash_path.exists() and hash_path.read_text(errors="replace").strip() == _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(path: Path, views: _Views) -> None:
    """Write under a temporary name, which a later process continues, rename, then write the hash."""
    unfinished = path.with_suffix(".writing")
    digest = write_resumable(unfinished, views.sizes(), views.piece)
    unfinished.replace(path)
    path.with_suffix(".sha256").write_text(digest + "\n")
    remove_unfinished(unfinished)


@dataclass(frozen=True)
class _Views:
    """The pieces of the file: its header, then the batches of one view after the other."""

    samples: Samples
    encoder: Encoder
    encode: Encode
    device: torch.device
    progress: Progress

    @property
    def dtype(self) -> str:
        """float16 for feature maps, whose size matters more than their last digits, else float32."""
        return "<f2" if any(group.problems > 1 for group in self.encoder.groups) else "<f4"

    def sizes(self) -> list[int]:
        """Return the bytes of every piece."""
        row = DTYPES[self.dtype] * self.encoder.stored_size
        return [len(self._header()), *(row * len(indices) for _, indices in self._batches())]

    def piece(self, number: int) -> bytes:
        """Return the content of that piece."""
        if number == 0:
            return self._header()
        view, indices = self._batches()[number - 1]
        features = self._features(view, torch.tensor(indices)).cpu().numpy().astype(self.dtype).tobytes()
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

        shape = (self._count(), len(self.samples), self.encoder.stored_size)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": self.dtype, "fortran_order": False, "shape": shape})
        return header.getvalue()

    @torch.no_grad()
    def _features(self, view: int, indices: Tensor) -> Tensor:
        batch = Batch(indices, torch.full(indices.shape, bool(view)))
        values = to_model_range(gather_samples(self.samples.values, batch).to(self.device))
        return flatten_groups(self.encode(values)).float()
