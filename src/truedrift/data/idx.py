"""Images and labels in the IDX format of MNIST, raw or gzipped.

    00 00 08 d | d sizes, 4 bytes each, most significant first | the bytes, last axis fastest

08 says "unsigned bytes" and d is the number of axes: 3 for images [N, H, W], 1 for labels [N]. The sizes are held
against the bytes that there are, and never more than they claim is read or decompressed.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import torch

from truedrift.axes import Tensor
from truedrift.data.samples import Samples
from truedrift.validation import Mistake, mistake

LARGEST_BYTES = 1 << 31
"""Of one file, decoded: 2 GiB, which is 2.7 million images of 28 × 28."""

STEMS = {"train": "train", "test": "t10k"}
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"


def read_idx(path: Path, axes: int) -> Tensor:
    """The bytes of the file as a uint8 tensor of that many axes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _decoded(file, axes)  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile, zlib.error, struct.error, _NotIdx) as error:
        raise _unreadable(path, str(error)) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None


class _NotIdx(Exception):
    """Why the bytes are not a complete IDX file."""


def _decoded(file: BinaryIO, axes: int) -> Tensor:
    magic = file.read(4)
    if magic != bytes((0, 0, 8, axes)):
        raise _NotIdx(f"it begins with {magic.hex(' ') or 'nothing'} and not with 00 00 08 {axes:02x}")
    sizes = struct.unpack(f">{axes}I", file.read(4 * axes))
    claimed = math.prod(sizes)
    if not 0 < claimed <= LARGEST_BYTES:
        raise _NotIdx(f"it claims {claimed} bytes, of 1 to {LARGEST_BYTES}")
    content = file.read(claimed + 1)  # one more, which must not be there
    if len(content) != claimed:
        raise _NotIdx(f"it claims {claimed} bytes and has {'more' if len(content) > claimed else len(content)}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(sizes)


def _unreadable(path: Path, why: str) -> Mistake:
    return mistake(
        f"{str(path)!r} cannot be read as IDX ({' '.join(why.split())})",
        "allowed is a complete file of unsigned bytes, raw or .gz",
        "fetch it again",
    )


def find_idx(root: Path, stem: str, kind: str) -> Path | None:
    """The file of that stem and kind in `root`, raw before gzipped, under either of its two usual names."""
    names = (f"{stem}-{kind}", f"{stem}-{kind.replace('-idx', '.idx')}")
    paths = (root / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def holds_idx(root: Path) -> bool:
    """Whether all four files are there."""
    return all(find_idx(root, stem, kind) for stem in STEMS.values() for kind in (IMAGES, LABELS))


def label_digests(root: Path) -> set[str]:
    """sha256 of the label files there, as they are decoded."""
    paths = (find_idx(root, stem, LABELS) for stem in STEMS.values())
    return {_digest(read_idx(path, 1)) for path in paths if path is not None}


def _digest(labels: Tensor) -> str:
    header = bytes((0, 0, 8, 1)) + struct.pack(">I", len(labels))
    return hashlib.sha256(header + bytes(labels.tolist())).hexdigest()


def read_split(root: Path, split: str, *, name: str, classes: tuple[str, ...], flips: bool) -> Samples:
    """The images [N, 1, H, W] and labels of one split, "train" or "test", in the directory `root`."""
    images = read_idx(_found(root, STEMS[split], IMAGES), 3)
    labels = read_idx(_found(root, STEMS[split], LABELS), 1).to(torch.int64)
    if len(images) != len(labels):
        raise mistake(
            f"{str(root)!r} has {len(images)} images and {len(labels)} labels of the {split} split",
            "allowed is one label an image",
            "fetch both files again",
        )
    return Samples(images[:, None], labels, classes, name, flips)


def _found(root: Path, stem: str, kind: str) -> Path:
    path = find_idx(root, stem, kind)
    if path is None:
        raise mistake(
            f"{str(root)!r} holds no file {stem}-{kind}",
            "allowed is a directory with it, raw or .gz",
            "name the directory with the four IDX files",
        )
    return path
