"""Features of every image and of its mirror image, encoded once, kept on disk, read where they are needed.

With a frozen encoder and mirroring as the only change of an image there are two views of each, so that the encoder has
nothing to do for positives after the first run. The file is an array [views, N, Σ D_s] of float32, memory-mapped: a
step reads the rows that it draws. Its name is a hash of the encoder's weights and options, the images and the
precision; beside it stands the hash of its content, which is compared before it is used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, gathered
from truedrift.data.samples import Samples, to_model
from truedrift.encoders.base import Encoder
from truedrift.encoders.scales import stack
from truedrift.progress import Progress
from truedrift.training.positives import Encode
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
        features = torch.from_numpy(rows).to(self.device, non_blocking=True)
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
    name = "/".join((encoder.fingerprint(), samples.digest(), precision, str(samples.flips)))
    path = directory / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npy"
    if not _whole(path):
        _write(path, samples, encoder, encode, device, progress)
    return path


def _whole(path: Path) -> bool:
    beside = path.with_suffix(".sha256")
    return path.exists() and beside.exists() and beside.read_text().strip() == _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(
    path: Path, samples: Samples, encoder: Encoder, encode: Encode, device: torch.device, progress: Progress
) -> None:
    """Under a name of this process, then renamed, then its hash beside it."""
    import numpy as np  # noqa: PLC0415  an extra

    mine = path.with_suffix(f".writing-{os.getpid()}.npy")
    shape = (2 if samples.flips else 1, len(samples), sum(encoder.dimensions))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        array = np.lib.format.open_memmap(mine, mode="w+", dtype=np.float32, shape=shape)
        for view in range(shape[0]):
            for start in range(0, shape[1], AT_ONCE):
                indices = torch.arange(start, min(start + AT_ONCE, shape[1]))
                array[view, start : start + AT_ONCE] = _features(samples, indices, view, encode, device).cpu().numpy()
                progress(f"features of {samples.name}", view * shape[1] + int(indices[-1]) + 1, shape[0] * shape[1])
        array.flush()
        del array
        with mine.open("rb") as file:
            os.fsync(file.fileno())
        digest = _sha256(mine)
        mine.replace(path)
        path.with_suffix(".sha256").write_text(digest + "\n")
    except OSError as error:
        raise mistake(
            f"features of {samples.name} cannot be kept in {str(path.parent)!r} ({error.strerror or error})",
            "that needs a directory with room for them",
            "set TRUEDRIFT_CACHE to another one, or engine.cached_positives=false",
        ) from None
    finally:
        mine.unlink(missing_ok=True)


@torch.no_grad()
def _features(samples: Samples, indices: Tensor, view: int, encode: Encode, device: torch.device) -> Tensor:
    batch = Batch(indices, torch.full(indices.shape, bool(view)))
    values = to_model(gathered(samples.values, batch).to(device))
    return torch.cat([f.float() for f in encode(values)], -1)
