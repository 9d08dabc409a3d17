"""The digest of the images of a folder, known from the last time they were read.

A run that is complete needs its data for one thing only: their hash, which must be that of the run. Reading tens of
thousands of images takes minutes, and a folder rarely changes. So a file in the cache holds what `Samples.describe`
returned, and the sha256 of everything that it depends on:

    name, size, time of modification and time of change of every file,
    split, image size and classes, and the versions of this package and of Pillow.

If any of these differs, or if the file is missing or damaged, the digest is not known and the images are read.
There is one file per folder and options; it is written again whenever the images are read.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift._version import __version__
from truedrift.data.folder import find_images
from truedrift.data.samples import Samples
from truedrift.errors import UserError, import_package
from truedrift.storage import cache_directory, read_regular, write_atomically


@dataclass(frozen=True)
class FolderDigest:
    """The place of a digest in the cache, and the state of the folder when this object was made."""

    path: Path
    state: str
    """Hash of what the digest depends on."""

    def read(self) -> dict[str, Any] | None:
        """Return what `Samples.describe` returned for a folder in this state; None if it is not known."""
        try:
            written = json.loads(read_regular(self.path).decode())
            return dict(written["data"]) if written["state"] == self.state else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def write(self, samples: Samples) -> None:
        """Write the description of the samples, if possible. A cache that cannot be written only costs time."""
        content = json.dumps({"state": self.state, "data": samples.describe()}) + "\n"
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, content.encode(), sync=False)


def folder_digest(
    root: Path, *, split: str = "train", image_size: int | None = None, classes: Sequence[str] = ()
) -> FolderDigest | None:
    """Return the digest of a folder in its present state. No image is opened.

    Call it before the images are read: if a file changes meanwhile, the digest is not that of the changed folder.

    Args:
        root: The directory, as for `read_folder`.
        split: "train", "test" or "all".
        image_size: The side to which images are resized.
        classes: Names of the classes to select.

    Returns:
        The digest to read or write; None if the folder cannot be listed.
    """
    options = (str(root.resolve()), split, image_size, list(classes))
    state = hashlib.sha256(repr((__version__, options)).encode())
    try:
        state.update(import_package("PIL", "reading images", "train").__version__.encode())
        _, files = find_images(root, split)
        for path, label in files:
            found = path.stat()
            facts = (path.relative_to(root), label, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            state.update(repr(facts).encode())
    except (OSError, UserError):
        return None
    name = hashlib.sha256(repr(options).encode()).hexdigest()[:24]
    return FolderDigest(cache_directory("folders") / f"{name}.json", state.hexdigest())
