"""Hostile IDX files and CIFAR archives for `train`."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .commands import replace_everywhere
from .hostile import Hostile, hostile_attack
from .hostile_arrays import ESCAPE
from .runs import Bench
from .table import Attack


def to_idx(sizes: Sequence[int], data: bytes, magic: bytes = b"\0\0\x08") -> bytes:
    return magic + bytes([len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + data


def to_tar(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def gzip_bomb(beginning: bytes, megabytes: int) -> bytes:
    """Return a compressed file: a beginning, then that many MiB of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = packer.compress(beginning) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + block * megabytes


def tar_bomb(kind: bytes, megabytes: int) -> bytes:
    """Return an archive whose first member is of this kind, such as a long name, and has that many MiB of zeros."""
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, megabytes << 20
    return gzip_bomb(member.tobuf(), megabytes)


def link_member(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


GOOD_IMAGES, GOOD_LABELS = to_idx((20, 4, 4), bytes(320)), to_idx((20,), bytes(range(10)) * 2)
IDX: dict[str, tuple[str, bytes]] = {
    "images of 4 GB": ("train-images-idx3-ubyte", to_idx((1 << 16, 1 << 8, 1 << 8), bytes(16))),
    "images beyond 64 bits": ("train-images-idx3-ubyte", to_idx((0xFFFFFFFF,) * 3, bytes(16))),
    "400 MB of images in 0.4 MB": ("train-images-idx3-ubyte.gz", gzip_bomb(to_idx((400, 1024, 1024), b""), 400)),
    "images of 0 pixels": ("train-images-idx3-ubyte", to_idx((20, 0, 4), b"")),
    "images that are cut": ("train-images-idx3-ubyte", GOOD_IMAGES[:-1]),
    "images that go on": ("train-images-idx3-ubyte", GOOD_IMAGES + b"1"),
    "images of floats": ("train-images-idx3-ubyte", to_idx((20, 4, 4), bytes(1280), b"\0\0\x0d")),
    "labels above 9": ("train-labels-idx1-ubyte", to_idx((20,), bytes(range(100, 120)))),
    "fewer labels": ("train-labels-idx1-ubyte", to_idx((19,), bytes(19))),
    "labels that are text": ("train-labels-idx1-ubyte", b"text"),
    "compressed text": ("train-images-idx3-ubyte.gz", gzip.compress(b"text")),
    "a damaged .gz": ("train-images-idx3-ubyte.gz", gzip.compress(GOOD_IMAGES)[:-12] + b"damaged"),
}

BATCH = "cifar-10-batches-bin/data_batch_1.bin"
CIFAR: dict[str, bytes] = {
    "long name of 400 MB": tar_bomb(tarfile.GNUTYPE_LONGNAME, 400),
    "extended header of 400 MB": tar_bomb(tarfile.XHDTYPE, 400),
    "member of 400 MB": tar_bomb(tarfile.REGTYPE, 400),
    "text": b"no archive",
    "nothing": b"",
    "archive that is cut": to_tar([(tarfile.TarInfo(BATCH), bytes(3073))])[:100],
    "batch of zeros": to_tar([(tarfile.TarInfo(BATCH), bytes(30_730))]),
    "batch that is a link": to_tar([(link_member(BATCH, "/dev/zero"), b"")]),
    "member that leads elsewhere": to_tar([(tarfile.TarInfo("../elsewhere"), b"1")]),
    "name with control characters": to_tar([(tarfile.TarInfo(f"x/{ESCAPE}"), b"1")]),
}


def write_idx(folder: Path, name: str, content: bytes) -> list[str]:
    """Write the four files, one of them hostile."""
    data = folder / "data"
    data.mkdir()
    for split in ("train", "t10k"):
        for kind, good in (("images-idx3-ubyte", GOOD_IMAGES), ("labels-idx1-ubyte", GOOD_LABELS)):
            if f"{split}-{kind}" != name.removesuffix(".gz"):
                (data / f"{split}-{kind}").write_bytes(good)
    (data / name).write_bytes(content)
    return train_data_set("fashion-mnist-pixels", folder)


def write_cifar(folder: Path, content: bytes) -> list[str]:
    (folder / "data").mkdir()
    (folder / "data" / "cifar-10-binary.tar.gz").write_bytes(content)
    return train_data_set("cifar10-cpu", folder)


def train_data_set(recipe: str, folder: Path) -> list[str]:
    network = ("generator.width=16", "generator.depth=1") if recipe == "fashion-mnist-pixels" else ()
    settings = (*network, "cadence.epochs=1", "cadence.steps_per_epoch=2", "batch.n=2", "batch.generated=3")
    flags = [flag for setting in (*settings, "evaluation.extractor=none") for flag in ("--set", setting)]
    return ["train", recipe, "--data", str(folder / "data"), *flags, "--device", "cpu", "--out", str(folder / "run")]


def data_set_cases() -> list[Hostile]:
    cases = [
        Hostile(f"IDX: {name}", partial(write_idx, name=file, content=content)) for name, (file, content) in IDX.items()
    ]
    return cases + [Hostile(f"CIFAR: {name}", partial(write_cifar, content=content)) for name, content in CIFAR.items()]


def believe_sizes() -> None:
    """Break the reader: the size that an IDX file claims is not compared with the file."""
    replace_everywhere("LARGEST_RATIO", 1 << 62)


def attacks(bench: Bench) -> list[Attack]:
    return [
        hostile_attack(
            bench,
            "hostile IDX and CIFAR files: train",
            data_set_cases(),
            harmless=partial(write_idx, name="train-images-idx3-ubyte.gz", content=gzip.compress(GOOD_IMAGES)),
            control="claimed sizes believed",
            broken=believe_sizes,
            red="IDX: 400 MB of images in 0.4 MB",
        ),
    ]
