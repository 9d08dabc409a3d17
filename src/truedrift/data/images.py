"""Image data sets in their published formats: digits of scikit-learn, (Fashion-)MNIST in IDX, CIFAR in binary records.

Digits. 1 797 handwritten digits, 8 × 8 pixels v in 0 … 16, as bytes b = round(255 v / 16). Every fifth one (index 0, 5,
10, …) belongs to the test split, the others to the train split.

IDX, the format of MNIST, raw or gzipped:

    00 00 08 d | d sizes, 4 bytes each, most significant first | the bytes, last axis fastest

08 stands for unsigned bytes and d is the number of axes: 3 for images [N, H, W], 1 for labels [N]. The sizes are
compared with the bytes in the file, and never more than they claim is read or decompressed. A compressed file may
unfold to 100 times its size.

CIFAR-10 and CIFAR-100 in their official binary format, from the archive or from a folder with its files:

    CIFAR-10 record    label | 3 × 32 × 32 bytes, channel by channel
    CIFAR-100 record   coarse label | fine label | 3 × 32 × 32 bytes

The archive is read once as a stream, member by member; nothing is extracted to disk. Its number of members and the
extended headers, which are read into memory, are limited. Size and sha256 of every file are
checked after decoding, so a damaged copy is never used for training.
Reference: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
"""

import gzip
import hashlib
import math
import struct
import tarfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Self

import torch

from truedrift.axes import Tensor
from truedrift.data.array_files import ALWAYS_ALLOWED, LARGEST_RATIO
from truedrift.data.registry import REMOTE_ASSETS, PinnedFile
from truedrift.data.samples import Samples
from truedrift.errors import UserError, error_text, import_package
from truedrift.storage import open_to_read

DIGITS = tuple("0123456789")
FASHION = ("t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle
bowl boy bridge bus butterfly camel can castle caterpillar cattle
chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
plain plate poppy porcupine possum rabbit raccoon ray road rocket
rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR100_CLASSES = tuple(_FINE.split())


def digits(split: str) -> Samples:
    """Load the digits of a split, "train", "test" or "all", in the order of scikit-learn."""
    stored = import_package("sklearn.datasets", "the data set digits", "train").load_digits()
    values = torch.from_numpy(stored.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(stored.target).to(torch.int64)
    is_test = torch.arange(len(values)) % 5 == 0
    selected = {"train": ~is_test, "test": is_test, "all": is_test | ~is_test}[split]
    return Samples(values[selected], labels[selected], DIGITS, "digits", flips=False)


class _DamagedFile(Exception):
    """Reason why a file is not complete or not the official one."""


# ---- IDX ----

IDX = {"mnist": DIGITS, "fashion-mnist": FASHION}
"""Class names. No image may be mirrored: digits would change, and all shoes point to the left."""

LARGEST_BYTES = 1 << 31
"""Limit for one decoded file: 2 GiB, which is 2.7 million images of 28 × 28."""

STEMS = {"train": "train", "test": "t10k"}
KINDS = {"images": "images-idx3-ubyte", "labels": "labels-idx1-ubyte"}

IdxFiles = dict[tuple[str, str], Path]
"""The four files of an IDX data set by (split, "images" or "labels")."""


def find_idx(root: Path) -> IdxFiles | None:
    """Find the four files in `root` under either of their usual names, raw before gzipped; None if one is missing."""
    files = {}
    for split, stem in STEMS.items():
        for content, kind in KINDS.items():
            names = (f"{stem}-{kind}", f"{stem}-{kind.replace('-idx', '.idx')}")
            paths = (root / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
            path = next((path for path in paths if path.is_file()), None)
            if path is None:
                return None
            files[split, content] = path
    return files


def read_idx_split(files: IdxFiles, name: str, split: str) -> Samples:
    """Read the images [N, 1, H, W] and labels of one split, "train" or "test", of the data set `name`."""
    images = read_idx(files[split, "images"], 3)
    labels = read_idx(files[split, "labels"], 1).to(torch.int64)
    if len(images) != len(labels):
        folder = str(files[split, "images"].parent)
        problem = f"{folder!r} has {len(images)} images and {len(labels)} labels of the {split} split"
        raise UserError(problem, "must have one label per image", "fetch both files again")
    return Samples(images[:, None], labels, IDX[name], name, flips=False)


def hash_labels(files: IdxFiles) -> set[str]:
    """Compute the sha256 of the label files, decoded."""
    hashes = set()
    for split in STEMS:
        labels = read_idx(files[split, "labels"], 1)
        header = struct.pack(">4BI", 0, 0, 8, 1, len(labels))
        hashes.add(hashlib.sha256(header + bytes(labels.tolist())).hexdigest())
    return hashes


def read_idx(path: Path, axes: int) -> Tensor:
    """Read an IDX file as a uint8 tensor with `axes` axes."""
    try:
        largest = min(LARGEST_BYTES, max(LARGEST_RATIO * path.stat().st_size, ALWAYS_ALLOWED))
        with open_to_read(path) as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            return _decode_idx(file, axes, largest)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error, struct.error, _DamagedFile) as error:
        raise UserError(
            f"{str(path)!r} cannot be read as IDX ({error_text(error)})",
            "must be a complete file of unsigned bytes, raw or .gz",
            "fetch it again",
        ) from None


def _decode_idx(file: BinaryIO, axes: int, largest: int) -> Tensor:
    magic = file.read(4)
    if magic != bytes((0, 0, 8, axes)):
        raise _DamagedFile(f"it begins with {magic.hex(' ') or 'nothing'} instead of 00 00 08 {axes:02x}")
    sizes = struct.unpack(f">{axes}I", file.read(4 * axes))
    claimed = math.prod(sizes)
    if not 0 < claimed <= largest:
        raise _DamagedFile(f"it claims {claimed} bytes, which is not in 1 to {largest}")
    content = file.read(claimed + 1)  # one more byte, which must not exist
    if len(content) != claimed:
        raise _DamagedFile(f"it claims {claimed} bytes and has {'more' if len(content) > claimed else len(content)}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(sizes)


# ---- CIFAR ----

IMAGE = (3, 32, 32)


@dataclass(frozen=True)
class CifarFormat:
    """Names and sizes of the files of a CIFAR data set, in the archive and in its folder."""

    name: str
    archive: str
    folder: str
    files: tuple[PinnedFile, ...]
    """The files of the train split, and last the one of the test split."""
    classes: tuple[str, ...]
    label_bytes: int
    """Bytes before the pixels; the last one is the label."""


CIFAR = {
    "cifar10": CifarFormat(
        name="cifar10",
        archive="cifar-10-binary.tar.gz",
        folder="cifar-10-batches-bin",
        files=REMOTE_ASSETS["cifar10"].files,
        classes=CIFAR10_CLASSES,
        label_bytes=1,
    ),
    "cifar100": CifarFormat(
        name="cifar100",
        archive="cifar-100-binary.tar.gz",
        folder="cifar-100-binary",
        files=REMOTE_ASSETS["cifar100"].files,
        classes=CIFAR100_CLASSES,
        label_bytes=2,
    ),
}


def find_cifar(root: Path, layout: CifarFormat) -> Path | None:
    """Return `root` if it is a file, else the folder in it with all .bin files, else the archive in it, else None."""
    if root.is_file():
        return root
    for folder in (root, root / layout.folder):
        if all((folder / file.name).is_file() for file in layout.files):
            return folder
    archive = root / layout.archive
    return archive if archive.is_file() else None


def read_cifar(place: Path, layout: CifarFormat, split: str) -> Samples:
    """Read the images and labels of one split, "train" or "test"; `place` is the archive or the folder."""
    # Read the files of the split, each up to one byte more than its size.
    parts = layout.files[:-1] if split == "train" else layout.files[-1:]
    sizes = {part.name: part.size for part in parts}
    content: dict[str, bytes] = {}
    try:
        for name, file in (tar_members if place.is_file() else _folder_members)(place, sizes):
            content[name] = file.read(sizes[name] + 1)
            if len(content) == len(sizes):
                break
        records = b"".join(_verify(part, content) for part in parts)
    except (OSError, tarfile.TarError, EOFError, zlib.error, _DamagedFile) as error:
        raise UserError(
            f"{str(place)!r} cannot be read as CIFAR ({error_text(error)})",
            "must be the official binary archive or its folder",
            "fetch it again",
        ) from None
    # Split the records into labels and pixels.
    table = torch.frombuffer(bytearray(records), dtype=torch.uint8).view(-1, layout.label_bytes + math.prod(IMAGE))
    labels = table[:, layout.label_bytes - 1].to(torch.int64)
    return Samples(table[:, layout.label_bytes :].reshape(-1, *IMAGE), labels, layout.classes, layout.name, flips=True)


LARGEST_HEADER, MOST_MEMBERS = 1 << 20, 100_000
"""Limits for the extended header of a member, such as its long name, and for the number of members."""
_HEADERS = (*tarfile.GNU_TYPES, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class _Member(tarfile.TarInfo):
    """A member whose header is small: tarfile reads extended headers into memory, of any size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.type == tarfile.GNUTYPE_SPARSE or (member.type in _HEADERS and member.size > LARGEST_HEADER):
            raise tarfile.ReadError(f"a header of type {member.type!r} claims {member.size} bytes")
        return member


def tar_members(path: Path, names: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the regular members of a .tar.gz whose base name is wanted, in the order of the archive."""
    with tarfile.open(path, "r|gz", tarinfo=_Member) as archive:
        for number, member in enumerate(archive):
            if number >= MOST_MEMBERS:
                raise tarfile.ReadError(f"it has more than {MOST_MEMBERS} members")
            name = PurePosixPath(member.name).name
            stream = archive.extractfile(member) if name in names and member.isreg() else None
            if stream is not None:
                yield name, stream


def _folder_members(folder: Path, names: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    for name in names:
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                yield name, file


def _verify(part: PinnedFile, content: dict[str, bytes]) -> bytes:
    """Return the bytes of the part after checking their hash."""
    if part.name not in content:
        raise _DamagedFile(f"{part.name} is missing")
    if hashlib.sha256(content[part.name]).hexdigest() != part.sha256:
        raise _DamagedFile(f"the sha256 of {part.name} differs from the official file")
    return content[part.name]
