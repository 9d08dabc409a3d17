"""Features of every image and of its mirror image, encoded once, kept on disk, read where they are needed.

With a frozen encoder and mirroring as the only change of an image there are two views of each, so that the encoder has
nothing to do for positives after the first run. The file is an array [views, N, Σ D_s] of float32, memory-mapped: a
step reads the rows that it draws. Its name is a hash of the encoder's weights and options, the images, the precision
and this version; beside it stands the hash of its content, which is compared before it is used. One process makes it,
and others that want the same one wait for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, gathered
from truedrift.data.samples import Samples, to_model
from truedrift.encoders.base import Encoder
from truedrift.encoders.scales import stack
from truedrift.progress import Progress
from truedrift.records.origin import version
from truedrift.training.positives import Encode
from truedrift.training.transfer import to_device
from truedrift.validation import mistake

if TYPE_CHECKING:
    import numpy as np

AT_ONCE = 256
"""Images encoded at a time: always the same, so that the bits do not depend on a run's batch."""


class Kept:
    """Looks features up in the file."""

    def __init__(self, path: Path, dimensions: Sequence[int], device: torch.device) -> None:
        import numpy as np  # noqa: PLC0415  an extra

        self.views: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        self.dimensions, self.device = list(dimensions), device

    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        rows = self.views[batch.mirrored.long().numpy(), batch.indices.numpy()]
        features = to_device(torch.from_numpy(rows), self.device)
        return stack(features.split(self.dimensions, -1)).transpose(0, 1)


def keep(
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
    name = "/".join((version(), encoder.fingerprint(), samples.digest(), precision, str(samples.flips)))
    path = directory / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npy"
    if _whole(path):
        return path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _alone(path):
            if not _whole(path):  # others may have made it meanwhile
                _make(path, samples, encoder, encode, device, progress)
    except OSError as error:
        raise mistake(
            f"features of {samples.name} cannot be kept in {str(directory)!r} ({error.strerror or error})",
            "that needs a directory with room for them",
            "set TRUEDRIFT_CACHE to another one, or engine.cached_positives=false",
        ) from None
    return path


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; the kernel ends the turn of one that dies.

    Where files cannot be locked, two may make the same file, each under a name of its own.
    """
    with path.with_suffix(".lock").open("a") as file:
        locked = _locked(file)
        if locked:  # then nobody writes: what others began is left over
            for begun in path.parent.glob(f"{path.stem}.writing-*"):
                begun.unlink()
        yield


def _locked(file: io.TextIOWrapper) -> bool:
    try:
        import fcntl  # noqa: PLC0415  Windows has none

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return False
    return True


def _whole(path: Path) -> bool:
    beside = path.with_suffix(".sha256")
    return path.exists() and beside.exists() and beside.read_text(errors="replace").strip() == _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make(
    path: Path, samples: Samples, encoder: Encoder, encode: Encode, device: torch.device, progress: Progress
) -> None:
    """Under a name of this process, then renamed, then its hash beside it."""
    mine = path.with_suffix(f".writing-{os.getpid()}")
    try:
        with mine.open("wb") as file:
            _write(file, samples, encoder, encode, device, progress)
            file.flush()
            os.fsync(file.fileno())
        digest = _sha256(mine)
        mine.replace(path)
        path.with_suffix(".sha256").write_text(digest + "\n")
    finally:
        mine.unlink(missing_ok=True)


def _write(
    file: io.BufferedWriter,
    samples: Samples,
    encoder: Encoder,
    encode: Encode,
    device: torch.device,
    progress: Progress,
) -> None:
    """One batch after another, as they stand in the file: a map of a full disk would end the process."""
    import numpy as np  # noqa: PLC0415  an extra

    views, total, width = 2 if samples.flips else 1, len(samples), sum(encoder.dimensions)
    header = {"descr": "<f4", "fortran_order": False, "shape": (views, total, width)}
    np.lib.format.write_array_header_1_0(file, header)
    for view in range(views):
        for start in range(0, total, AT_ONCE):
            indices = torch.arange(start, min(start + AT_ONCE, total))
            file.write(_features(samples, indices, view, encode, device).cpu().numpy().astype("<f4").tobytes())
            progress(f"features of {samples.name}", view * total + int(indices[-1]) + 1, views * total)


@torch.no_grad()
def _features(samples: Samples, indices: Tensor, view: int, encode: Encode, device: torch.device) -> Tensor:
    batch = Batch(indices, torch.full(indices.shape, bool(view)))
    values = to_model(gathered(samples.values, batch).to(device))
    return torch.cat([f.float() for f in encode(values)], -1)
