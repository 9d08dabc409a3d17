"""Hostile folders of images for `train folder`, and names with control characters."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from PIL import Image

from .commands import replace_everywhere
from .hostile import NO_FILES, READ_OR_REFUSED, REFUSED, Hostile, hostile_attack, mutate
from .hostile_arrays import ESCAPE
from .ranks import folder_arguments, write_images
from .runs import Bench
from .table import Attack

# ---- Images ----


def encode(form: str, size: tuple[int, int] = (9, 8), mode: str = "RGB", **options: object) -> bytes:
    """Return a valid image."""
    content = io.BytesIO()
    values = torch.randint(0, 256, (size[1], size[0], 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    Image.fromarray(values.numpy()).convert(mode).save(content, form, **options)
    return content.getvalue()


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def to_png(width: int, height: int, data: bytes = b"", more: bytes = b"", depth: int = 8, color: int = 0) -> bytes:
    """Return a PNG that claims this size, with this compressed data."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + more + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def zeros(megabytes: int) -> bytes:
    """Compress that many MiB of zeros, without having them in memory."""
    packer = zlib.compressobj(9)
    start = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + block * megabytes + struct.pack(">I", 0)


def claim_jpeg_size(size: int) -> bytes:
    """Return a JPEG that claims this height and width."""
    data = bytearray(encode("JPEG"))
    place = data.index(b"\xff\xc0")
    data[place + 5 : place + 9] = struct.pack(">HH", size, size)
    return bytes(data)


def with_exif(exif: bytes) -> bytes:
    """Return a JPEG with this EXIF segment."""
    data = encode("JPEG")
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 8) + b"Exif\x00\x00" + exif + data[2:]


IMAGES: dict[str, tuple[str, bytes]] = {
    "PNG that claims 60,000 × 60,000 pixels": ("a.png", to_png(60_000, 60_000)),
    "PNG of 169 million pixels in 0.2 MB": ("a.png", to_png(13_000, 13_000, zeros(162))),
    "PNG that claims 2³¹ × 1 pixels": ("a.png", to_png(0x7FFFFFFF, 1)),
    "PNG without pixels": ("a.png", to_png(0, 0)),
    "PNG of 16 bits": ("a.png", to_png(8, 8, zlib.compress(bytes(136)), depth=16)),
    "PNG that is cut": ("a.png", encode("PNG")[:-40]),
    "PNG with a text of 1 GB": (
        "a.png",
        to_png(8, 8, zlib.compress(bytes(72)), png_chunk(b"zTXt", b"a\0\0" + zeros(1024))),
    ),
    "PNG with a profile of 1 GB": (
        "a.png",
        to_png(8, 8, zlib.compress(bytes(72)), png_chunk(b"iCCP", b"a\0\0" + zeros(1024))),
    ),
    "PNG with a damaged EXIF": (
        "a.png",
        to_png(8, 8, zlib.compress(bytes(72)), png_chunk(b"eXIf", b"II*\0\xff\xff\xff\xff")),
    ),
    "JPEG that claims 65,500 × 65,500 pixels": ("a.jpg", claim_jpeg_size(65_500)),
    "JPEG that is cut": ("a.jpg", encode("JPEG", (64, 64))[:400]),
    "JPEG with a damaged EXIF": ("a.jpg", with_exif(b"MM\0*\0\0\0\x08\xff\xff" + bytes(range(200)))),
    "JPEG with an EXIF of text": ("a.jpg", with_exif(b"no exif")),
    "WebP that is cut": ("a.webp", encode("WEBP", (64, 64))[:60]),
    "BMP that claims 2³¹ pixels": (
        "a.bmp",
        encode("BMP")[:18] + struct.pack("<ii", 65_536, 32_767) + encode("BMP")[26:],
    ),
    "GIF as PNG": ("a.png", encode("GIF")),
    "TIFF as JPEG": ("a.jpg", encode("TIFF")),
    "text": ("a.png", b"<svg onload=alert(1)>"),
    "nothing": ("a.jpeg", b""),
}
READABLE = ("damaged EXIF", "EXIF of text", "text of 1 GB", "profile of 1 GB")
"""Images whose pixels are complete may be read."""


def train_on(folder: Path) -> list[str]:
    return folder_arguments(folder / "run", folder / "images")


def write_image(folder: Path, name: str, content: bytes) -> list[str]:
    """Write twelve good images and a hostile one."""
    (write_images(folder / "images", 0) / "a" / name).write_bytes(content)
    return train_on(folder)


def place_in_images(folder: Path, place: Callable[[Path, Path], None]) -> list[str]:
    place(write_images(folder / "images", 0) / "a" / "x.png", folder)
    return train_on(folder)


def image_cases() -> list[Hostile]:
    cases = [
        Hostile(
            name,
            partial(write_image, name=file, content=content),
            READ_OR_REFUSED if any(part in name for part in READABLE) else REFUSED,
        )
        for name, (file, content) in IMAGES.items()
    ]
    return cases + [
        Hostile(f"{what} as an image", partial(place_in_images, place=place), READ_OR_REFUSED)
        for what, place in NO_FILES.items()
    ]


def draw_mutated_image(rng: random.Random, number: int) -> Hostile:
    form, name = rng.choice((("PNG", "x.png"), ("JPEG", "x.jpg"), ("WEBP", "x.webp"), ("BMP", "x.bmp")))
    exif = with_exif(b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0")
    valid = exif if form == "JPEG" and rng.random() < 0.5 else encode(form, (20, 20), rng.choice(("RGB", "L")))
    return Hostile(
        f"{form} with changed bytes", partial(write_image, name=name, content=mutate(valid, rng)), READ_OR_REFUSED
    )


def allow_any_pixels() -> None:
    """Break the reader: images have no limit."""
    replace_everywhere("LARGEST_PIXELS", 1 << 62)
    Image.MAX_IMAGE_PIXELS = None


def leave_errors() -> None:
    """Break the reader: defects of an image are not caught."""
    replace_everywhere("_unreadable_image", lambda path, reason: RuntimeError(reason))


# ---- Names ----

NAMES = (
    ESCAPE,
    "\x9b31m",
    "\r\x1b[2K",
    "a\nb",
    "\u2066\u202eback",
    "\udcff\udc9b",
    "é" * 120,
    "-rf",
    "<b>&",
    "%s{0}",
    ".",
)
"""Names of classes and files; the sixth is not UTF-8."""


def write_named(folder: Path, name: str, where: str) -> list[str]:
    """Write a folder of images in which a class, an image or a file of another kind has that name."""
    images = write_images(folder / "images", 0)
    if where == "class":
        (images / "a").rename(images / name.replace(".", "dot"))
    elif where == "broken image":
        (images / "a" / f"{name}.png").write_bytes(b"no image")
    else:
        (images / "a" / f"x.{name}").write_bytes(b"no image")
    return train_on(folder)


def write_named_run(folder: Path, name: str) -> list[str]:
    return ["sample", str(folder / name.replace("/", "")), "--classes", name]


def name_cases() -> list[Hostile]:
    cases = [
        Hostile(f"{where} named {name!a}", partial(write_named, name=name, where=where), READ_OR_REFUSED)
        for name in NAMES
        for where in ("class", "broken image", "file of another kind")
    ]
    words = [name for name in NAMES if not name.startswith("-")]
    return cases + [Hostile(f"run named {name!a}", partial(write_named_run, name=name)) for name in words]


def print_as_it_is() -> None:
    """Break the printing: control characters are not escaped."""
    replace_everywhere("printable", lambda text: text)


def attacks(bench: Bench) -> list[Attack]:
    return [
        hostile_attack(
            bench,
            "hostile images: train folder",
            image_cases(),
            harmless=partial(write_image, name="x.png", content=encode("PNG")),
            control="no limit for pixels",
            broken=allow_any_pixels,
            red="PNG of 169 million pixels in 0.2 MB",
        ),
        Attack(
            "images with changed bytes: train folder",
            draw_mutated_image,
            lambda case, before: case.attempt(bench, before),
            control="defects of an image not caught",
            broken=leave_errors,
            quick_tries=4,
        ),
        hostile_attack(
            bench,
            "names with control characters: train, sample",
            name_cases(),
            harmless=partial(write_named, name="c", where="class"),
            control="printed as they are",
            broken=print_as_it_is,
            red=f"class named {ESCAPE!a}",
        ),
    ]
