"""CIFAR-10 and CIFAR-100 in their official binary format, from the archive or from a folder with its files.

    CIFAR-10 record    label | 3 × 32 × 32 bytes, channel by channel
    CIFAR-100 record   coarse label | fine label | 3 × 32 × 32 bytes

The archive is a stream that is read once, member by member; nothing is ever extracted to disk. Size and sha256 of every
file are checked after decoding, so that a damaged copy is never trained on.
Reference: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import torch

from truedrift.axes import Tensor
from truedrift.data.class_names import CIFAR10_CLASSES, CIFAR100_CLASSES
from truedrift.data.pinned import CIFAR10_TEST, CIFAR10_TRAIN, CIFAR100_TEST, CIFAR100_TRAIN, Pinned
from truedrift.data.samples import Samples
from truedrift.validation import Mistake, mistake

IMAGE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
LARGEST_NAMES = 1 << 16
"""Bytes of the file of class names."""


@dataclass(frozen=True)
class Layout:
    """Where the parts of a data set are, in the archive and in its folder."""

    name: str
    archive: str
    folder: str
    train: tuple[Pinned, ...]
    test: tuple[Pinned, ...]
    names_file: str
    classes: tuple[str, ...]
    label_bytes: int
    """The last of them is the label."""


CIFAR10 = Layout(
    name="cifar10",
    archive="cifar-10-binary.tar.gz",
    folder="cifar-10-batches-bin",
    train=CIFAR10_TRAIN,
    test=CIFAR10_TEST,
    names_file="batches.meta.txt",
    classes=CIFAR10_CLASSES,
    label_bytes=1,
)
CIFAR100 = Layout(
    name="cifar100",
    archive="cifar-100-binary.tar.gz",
    folder="cifar-100-binary",
    train=CIFAR100_TRAIN,
    test=CIFAR100_TEST,
    names_file="fine_label_names.txt",
    classes=CIFAR100_CLASSES,
    label_bytes=2,
)


def find_cifar(root: Path, layout: Layout) -> Path | None:
    """`root` itself if it is a file, else the folder with all .bin files in it or the archive in it, else None."""
    if root.is_file():
        return root
    files = [part.name for part in (*layout.train, *layout.test)]
    for folder in (root, root / layout.folder):
        if all((folder / name).is_file() for name in files):
            return folder
    archive = root / layout.archive
    return archive if archive.is_file() else None


def read_cifar(place: Path, layout: Layout, split: str) -> Samples:
    """The images and labels of one split, "train" or "test"; `place` is the archive or the folder."""
    parts = {"train": layout.train, "test": layout.test}[split]
    wanted = {part.name: part.size for part in parts} | {layout.names_file: LARGEST_NAMES}
    try:
        content = _from_archive(place, wanted) if place.is_file() else _from_folder(place, wanted)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise _unreadable(place, str(error)) from None
    except OSError as error:
        raise _unreadable(place, error.strerror or str(error)) from None
    records = torch.cat([_records(_verified(place, part, content), layout) for part in parts])
    labels = records[:, layout.label_bytes - 1].to(torch.int64)
    values = records[:, layout.label_bytes :].reshape(-1, *IMAGE)
    return Samples(values, labels, _classes(content.get(layout.names_file), layout), layout.name, flips=True)


def _from_archive(path: Path, wanted: dict[str, int]) -> dict[str, bytes]:
    """Members of those names, each one up to one byte more than its size; the rest of the stream is passed over."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            file = archive.extractfile(member) if name in wanted and member.isreg() else None
            if file is not None:
                found[name] = file.read(wanted[name] + 1)
            if len(found) == len(wanted):
                break
    return found


def _from_folder(folder: Path, wanted: dict[str, int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, size in wanted.items():
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                found[name] = file.read(size + 1)
    return found


def _verified(place: Path, part: Pinned, content: dict[str, bytes]) -> bytes:
    """The bytes of the part, after a look at their size and sum."""
    if part.name not in content:
        raise _unreadable(place, f"{part.name} is not in it")
    data = content[part.name]
    if len(data) != part.size:
        many = "more" if len(data) > part.size else len(data)
        raise _unreadable(place, f"{part.name} has {many} instead of {part.size} bytes")
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise _unreadable(place, f"the sha256 of {part.name} is not that of the official file")
    return data


def _unreadable(place: Path, why: str) -> Mistake:
    return mistake(
        f"{str(place)!r} cannot be read as CIFAR ({' '.join(why.split())})",
        "allowed is the official binary archive or its folder",
        "fetch it again",
    )


def _records(data: bytes, layout: Layout) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, layout.label_bytes + IMAGE_BYTES)


def _classes(text: bytes | None, layout: Layout) -> tuple[str, ...]:
    """The names that came with the data if there is one for every class, else the official ones."""
    names = tuple((text or b"").decode("utf-8", errors="replace").split())
    return names if len(names) == len(layout.classes) else layout.classes
