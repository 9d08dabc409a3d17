"""Image data sets in their published formats: digits of scikit-learn, (Fashion-)MNIST in IDX, CIFAR in binary records.

Digits. 1 797 handwritten digits, 8 × 8 pixels v in 0 … 16, as bytes b = round(255 v / 16). Every fifth one (index 0, 5,
10, …) belongs to the test split, the others to the train split.

IDX, the format of MNIST, raw or gzipped:

    00 00 08 d | d sizes, 4 bytes each, most significant first | the bytes, last axis fastest

08 stands for unsigned bytes and d is the number of axes: 3 for images [N, H, W], 1 for labels [N]. The sizes are
compared with the bytes in the file, and never more than they claim is read or decompressed.

CIFAR-10 and CIFAR-100 in their official binary format, from the archive or from a folder with its files:

    CIFAR-10 record    label | 3 × 32 × 32 bytes, channel by channel
    CIFAR-100 record   coarse label | fine label | 3 × 32 × 32 bytes

The archive is read once as a stream, member by member; nothing is extracted to disk. Size and sha256 of every file are
checked after decoding, so a damaged copy is never used for training.
Reference: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
"""

import gzip
import hashlib
import math
import struct
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import torch

from truedrift.axes import Tensor
from truedrift.data.download import PinnedFile, error_text
from truedrift.data.registry import CIFAR10_TEST, CIFAR10_TRAIN, CIFAR100_TEST, CIFAR100_TRAIN
from truedrift.data.samples import Samples
from truedrift.errors import UserError

DIGITS = tuple("0123456789")

FASHION_CLASSES = (
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

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
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # noqa: PLC0415  an extra
    except ImportError:
        raise UserError(
            "scikit-learn is not installed", "the digits are part of it", "run pip install 'truedrift[train]'"
        ) from None
    stored = load_digits()
    values = torch.from_numpy(stored.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(stored.target).to(torch.int64)
    is_test = torch.arange(len(values)) % 5 == 0
    selected = {"train": ~is_test, "test": is_test, "all": is_test | ~is_test}[split]
    return Samples(values[selected], labels[selected], DIGITS, "digits", flips=False)


LARGEST_BYTES = 1 << 31
"""Limit for one decoded file: 2 GiB, which is 2.7 million images of 28 × 28."""

STEMS = {"train": "train", "test": "t10k"}
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"


def read_idx(path: Path, axes: int) -> Tensor:
    """Read an IDX file as a uint8 tensor with `axes` axes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _decode(file, axes)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error, struct.error, _NotIdx) as error:
        raise UserError(
            f"{str(path)!r} cannot be read as IDX ({error_text(error)})",
            "must be a complete file of unsigned bytes, raw or .gz",
            "fetch it again",
        ) from None


class _NotIdx(Exception):
    """Reason why the bytes are not a complete IDX file."""


def _decode(file: BinaryIO, axes: int) -> Tensor:
    magic = file.read(4)
    if magic != bytes((0, 0, 8, axes)):
        raise _NotIdx(f"it begins with {magic.hex(' ') or 'nothing'} instead of 00 00 08 {axes:02x}")
    sizes = struct.unpack(f">{axes}I", file.read(4 * axes))
    claimed = math.prod(sizes)
    if not 0 < claimed <= LARGEST_BYTES:
        raise _NotIdx(f"it claims {claimed} bytes, which is not in 1 to {LARGEST_BYTES}")
    content = file.read(claimed + 1)  # one more byte, which must not exist
    if len(content) != claimed:
        raise _NotIdx(f"it claims {claimed} bytes and has {'more' if len(content) > claimed else len(content)}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(sizes)


def find_idx(root: Path, stem: str, kind: str) -> Path | None:
    """Find the file of that stem and kind in `root` under either of its two usual names; raw before gzipped."""
    names = (f"{stem}-{kind}", f"{stem}-{kind.replace('-idx', '.idx')}")
    paths = (root / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def holds_idx(root: Path) -> bool:
    """Return whether all four files are there."""
    return all(find_idx(root, stem, kind) for stem in STEMS.values() for kind in (IMAGES, LABELS))


def hash_label_files(root: Path) -> set[str]:
    """Compute the sha256 of the decoded label files in `root`."""
    paths = (find_idx(root, stem, LABELS) for stem in STEMS.values())
    return {_hash_labels(read_idx(path, 1)) for path in paths if path is not None}


def _hash_labels(labels: Tensor) -> str:
    header = bytes((0, 0, 8, 1)) + struct.pack(">I", len(labels))
    return hashlib.sha256(header + bytes(labels.tolist())).hexdigest()


def read_split(root: Path, split: str, *, name: str, classes: tuple[str, ...], flips: bool) -> Samples:
    """Read the images [N, 1, H, W] and labels of one split, "train" or "test", in the directory `root`."""
    images = read_idx(_require_idx(root, STEMS[split], IMAGES), 3)
    labels = read_idx(_require_idx(root, STEMS[split], LABELS), 1).to(torch.int64)
    if len(images) != len(labels):
        raise UserError(
            f"{str(root)!r} has {len(images)} images and {len(labels)} labels of the {split} split",
            "must have one label per image",
            "fetch both files again",
        )
    return Samples(images[:, None], labels, classes, name, flips)


def _require_idx(root: Path, stem: str, kind: str) -> Path:
    path = find_idx(root, stem, kind)
    if path is None:
        raise UserError(
            f"{str(root)!r} holds no file {stem}-{kind}",
            "must be a directory with the four IDX files, raw or .gz",
            "check the directory",
        )
    return path


IMAGE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
LARGEST_NAMES = 1 << 16
"""Limit for the file of class names, in bytes."""


@dataclass(frozen=True)
class CifarFormat:
    """Names and sizes of the files of a CIFAR data set, in the archive and in its folder."""

    name: str
    archive: str
    folder: str
    train: tuple[PinnedFile, ...]
    test: tuple[PinnedFile, ...]
    names_file: str
    classes: tuple[str, ...]
    label_bytes: int
    """Bytes before the pixels; the last one is the label."""


CIFAR10 = CifarFormat(
    name="cifar10",
    archive="cifar-10-binary.tar.gz",
    folder="cifar-10-batches-bin",
    train=CIFAR10_TRAIN,
    test=CIFAR10_TEST,
    names_file="batches.meta.txt",
    classes=CIFAR10_CLASSES,
    label_bytes=1,
)
CIFAR100 = CifarFormat(
    name="cifar100",
    archive="cifar-100-binary.tar.gz",
    folder="cifar-100-binary",
    train=CIFAR100_TRAIN,
    test=CIFAR100_TEST,
    names_file="fine_label_names.txt",
    classes=CIFAR100_CLASSES,
    label_bytes=2,
)


def find_cifar(root: Path, layout: CifarFormat) -> Path | None:
    """Return `root` if it is a file, else the folder in it with all .bin files, else the archive in it, else None."""
    if root.is_file():
        return root
    files = [part.name for part in (*layout.train, *layout.test)]
    for folder in (root, root / layout.folder):
        if all((folder / name).is_file() for name in files):
            return folder
    archive = root / layout.archive
    return archive if archive.is_file() else None


def read_cifar(place: Path, layout: CifarFormat, split: str) -> Samples:
    """Read the images and labels of one split, "train" or "test"; `place` is the archive or the folder."""
    # Read the files of the split.
    parts = {"train": layout.train, "test": layout.test}[split]
    wanted = {part.name: part.size for part in parts} | {layout.names_file: LARGEST_NAMES}
    try:
        content = _read_archive(place, wanted) if place.is_file() else _read_directory(place, wanted)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise _unreadable_cifar(place, error_text(error)) from None
    # Split the verified records into labels and pixels.
    records = torch.cat([_split_records(_verify(place, part, content), layout) for part in parts])
    labels = records[:, layout.label_bytes - 1].to(torch.int64)
    values = records[:, layout.label_bytes :].reshape(-1, *IMAGE)
    return Samples(values, labels, _class_names(content.get(layout.names_file), layout), layout.name, flips=True)


def _read_archive(path: Path, wanted: dict[str, int]) -> dict[str, bytes]:
    """Read the members of these names, each up to one byte more than its size."""
    content: dict[str, bytes] = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            file = archive.extractfile(member) if name in wanted and member.isreg() else None
            if file is not None:
                content[name] = file.read(wanted[name] + 1)
            if len(content) == len(wanted):
                break
    return content


def _read_directory(folder: Path, wanted: dict[str, int]) -> dict[str, bytes]:
    content: dict[str, bytes] = {}
    for name, size in wanted.items():
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                content[name] = file.read(size + 1)
    return content


def _verify(place: Path, part: PinnedFile, content: dict[str, bytes]) -> bytes:
    """Return the bytes of the part after checking their size and hash."""
    if part.name not in content:
        raise _unreadable_cifar(place, f"{part.name} is missing")
    data = content[part.name]
    if len(data) != part.size:
        size = f"more than {part.size}" if len(data) > part.size else f"{len(data)} instead of {part.size}"
        raise _unreadable_cifar(place, f"{part.name} has {size} bytes")
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise _unreadable_cifar(place, f"the sha256 of {part.name} differs from the official file")
    return data


def _unreadable_cifar(place: Path, reason: str) -> UserError:
    return UserError(
        f"{str(place)!r} cannot be read as CIFAR ({reason})",
        "must be the official binary archive or its folder",
        "fetch it again",
    )


def _split_records(data: bytes, layout: CifarFormat) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, layout.label_bytes + IMAGE_BYTES)


def _class_names(text: bytes | None, layout: CifarFormat) -> tuple[str, ...]:
    """Return the class names in the data if there is one per class, else the official ones."""
    names = tuple((text or b"").decode("utf-8", errors="replace").split())
    return names if len(names) == len(layout.classes) else layout.classes
