"""A user's own images: DIR/CLASS/*.png and similar, or images directly in DIR, which are one class "all".

A DIR with the folders train and test has these two splits; any other DIR is one train split. With `image_size` s, the
central square of each image is resized to s × s by an antialiased filter; without it, all images must have the same
size. Files and folders are sorted by name; names that begin with a dot are skipped.

Images are decoded by several threads. A JPEG that is much larger than s is decoded at a half, a quarter or an eighth of
its size, at least 8 s, which is several times faster.
"""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeVar

import torch

from truedrift.axes import Tensor
from truedrift.data.samples import Samples
from truedrift.errors import UserError, import_package
from truedrift.progress import Progress, no_progress
from truedrift.storage import open_to_read

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")

LARGEST_PIXELS = 1 << 26
"""Limit for one image, 67 million; checked before memory is allocated, since a small file may claim any size."""

LARGEST_BYTES = 1 << 36
"""Limit for all images in memory, 64 GiB."""

LARGEST_SIZE = 4096

DRAFT = 8
"""A JPEG is decoded at a smaller scale if it is then still this many times larger than the result."""

AT_ONCE = 16
"""Images that a thread reads at a time. Starting one task per small image would cost a fifth of the time."""

T = TypeVar("T")

_DEEP = ("I", "F")
"""Prefixes of Pillow's modes with more than one byte per channel."""


def read_folder(
    root: Path, *, split: str = "train", image_size: int | None = None, progress: Progress = no_progress
) -> Samples:
    """Read the images of a folder.

    Args:
        root: The directory, with one folder of images per class, or with images of a single class. The folders train
            and test, if it has both, are its splits; otherwise everything is the split "train".
        split: "train", "test" or "all" (train, then test).
        image_size: Side in pixels, 1 to 4096, to which the central square of every image is resized; None: all images
            must have the same size.
        progress: Called with a description, the number of images read, and their number; first for their headers.

    Returns:
        Images as bytes [N, C, H, W]; C is 1 if all images are gray, else 3. Transparent pixels become white. The
        classes are the sorted names of the folders, or "all" without class folders.

    Raises:
        UserError: If the directory or the split is missing, a class has no images, an image cannot be read, the sizes
            differ without `image_size`, or the images need more than 64 GiB.
    """
    if image_size is not None and not 1 <= image_size <= LARGEST_SIZE:
        raise UserError(f"is {image_size}", f"must be 1 to {LARGEST_SIZE}", "pass for example 32", field="image_size")
    import_package("PIL", "reading images", "train")
    classes, files = find_images(root, split)
    # Read the headers and check the sizes before memory is allocated.
    paths = [path for path, _ in files]
    headers = _read_all(_read_header, paths, partial(progress, "checking images"))
    sizes, modes = zip(*headers, strict=True)
    gray = set(modes) <= {"1", "L", "LA"}
    if image_size is None:
        _require_one_size(paths, sizes)
    width, height = sizes[0] if image_size is None else (image_size, image_size)
    shape = (1 if gray else 3, height, width)
    total = len(files) * math.prod(shape)
    if total > LARGEST_BYTES:
        problem = f"{len(files)} images of {math.prod(shape)} bytes are {total / 2**30:.0f} GiB"
        allowed = f"must be at most {LARGEST_BYTES >> 30} GiB in memory"
        raise UserError(problem, allowed, "use a smaller image size or fewer images")
    # Read the pixels.
    values = torch.empty(len(files), *shape, dtype=torch.uint8)
    read = partial(_read_pixels, image_size=image_size, channels=shape[0])
    for row, pixels in enumerate(_read_all(read, paths, partial(progress, "reading images"))):
        values[row] = pixels
    labels = torch.tensor([label for _, label in files])
    return Samples(values, labels, classes, "folder", flips=True)


def find_images(root: Path, split: str = "train") -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """Find the images that `read_folder` reads, without opening them.

    Args:
        root: The directory, as for `read_folder`.
        split: "train", "test" or "all" (train, then test).

    Returns:
        The classes, and the path and the label of every image.

    Raises:
        UserError: If the directory or the split is missing, or a class has no images.
    """
    splits = _find_splits(root)
    if split == "test" and "test" not in splits:
        problem = f"{str(root)!r} has no test split"
        raise UserError(problem, "must contain the folders train and test", "create them")
    names = _class_names(root, splits.values())
    folders = list(splits.values()) if split == "all" else [splits[split]]
    files = [(path, label) for folder in folders for label, name in enumerate(names) for path in _images(folder / name)]
    if not files:
        raise _no_images(folders[0])
    return ("all",) if names == ["."] else tuple(names), files


def count_images(root: Path, classes: Sequence[str] = ()) -> list[int]:
    """Return the number of training images per class that has any; of some classes, or of all if none are given."""
    names, files = find_images(root)
    counts = Counter(names[label] for _, label in files)
    return [counts[name] for name in classes or names if counts[name]]


def count_class_folders(root: Path) -> int:
    """Return the number of class folders; 1 for a folder of images, or if there is no such directory.

    Args:
        root: The directory, as for `read_folder`. Its images are not read.

    Returns:
        The number of classes, if the folder can be read.
    """
    splits = _find_splits(root) if root.is_dir() else {"train": root}
    return max(1, sum(each.is_dir() for each in _list_visible(splits["train"])))


def describe_folder(root: Path) -> str:
    """Describe the images that `read_folder` would read as training data: classes, numbers, and files of other types.

    Args:
        root: The directory, as for `read_folder`. No image is opened.

    Returns:
        One line.
    """
    train = _find_splits(root)["train"]
    names = _class_names(root, [train])
    counts = {name: len(_images(train / name)) for name in names}
    listed = ", ".join(f"{name} {count}" for name, count in list(counts.items())[:10])
    more = f", and {len(counts) - 10} more" if len(counts) > 10 else ""
    classes = "1 class" if len(names) == 1 else f"{len(names)} classes"
    found = f"one class of {sum(counts.values())} images" if names == ["."] else f"{classes}: {listed}{more}"
    others = Counter(
        suffix or entry.name
        for name in names
        for entry in _list_visible(train / name)
        if (suffix := _suffix(entry)) not in SUFFIXES and not entry.is_dir()
    )
    kinds = ", ".join(f"{suffix} {count}" for suffix, count in others.most_common(3))
    skipped = (
        f"; {others.total()} files are skipped, since they are not PNG, JPEG, WebP or BMP ({kinds})" if others else ""
    )
    return f"{found}{skipped}"


def has_test_split(root: Path) -> bool:
    """Return whether a folder of images has the splits train and test."""
    return "test" in _find_splits(root)


def _find_splits(root: Path) -> dict[str, Path]:
    """Return the folder of each existing split."""
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is not a directory", "must be a directory of images", "check the name")
    parts = {name: root / name for name in ("train", "test")}
    return parts if all(part.is_dir() for part in parts.values()) else {"train": root}


def _class_names(root: Path, folders: Collection[Path]) -> list[str]:
    """Return the folder names of all splits together, so that a class has one number; ["."] without class folders."""
    names = sorted({each.name for folder in folders for each in _list_visible(folder) if each.is_dir()})
    for name in names:
        if name.encode(errors="replace").decode() != name:  # could be neither printed nor recorded
            problem = f"the folder {name!r} has a name that is not UTF-8"
            raise UserError(problem, "must be the name of a class in UTF-8", "rename the folder")
    for folder in folders:
        loose = _images(folder)
        if loose and names:
            problem = f"{str(folder)!r} holds {len(loose)} images next to the folders {', '.join(names[:3])}"
            allowed = "images must be in one folder per class, or all in one"
            raise UserError(problem, allowed, "move them into a folder")
    for name in names or ["."]:
        if not any(_images(folder / name) for folder in folders):
            raise _no_images(root / name)
    return names or ["."]


def _no_images(folder: Path) -> UserError:
    allowed = f"must hold one or more images ({', '.join(SUFFIXES)})"
    return UserError(f"{str(folder)!r} holds no images", allowed, "check the directory")


def _list_visible(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder in the order of their names; the system lists files and folders in one call."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted((each for each in entries if not each.name.startswith(".")), key=lambda each: each.name)


def _suffix(entry: os.DirEntry[str]) -> str:
    return PurePath(entry.name).suffix.lower()


def _images(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in _list_visible(folder) if _suffix(entry) in SUFFIXES and not entry.is_dir()]


def _read_all(
    read: Callable[[Path], T], paths: Sequence[Path], progress: Callable[[float, float], None]
) -> Iterator[T]:
    """Yield `read(path)` of every path in order, computed by several threads; report the number of read paths."""

    def read_part(start: int) -> list[T]:
        return [read(path) for path in paths[start : start + AT_ONCE]]

    starts = range(0, len(paths), AT_ONCE)
    with ThreadPoolExecutor(min(32, os.cpu_count() or 1)) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow: on damaged metadata, and on sizes, which have a limit of their own
        try:
            for start, part in zip(starts, pool.map(read_part, starts), strict=True):
                for row, result in enumerate(part, start=start + 1):
                    yield result
                    progress(row, len(paths))
        finally:
            pool.shutdown(cancel_futures=True)


def _read_header(path: Path) -> tuple[tuple[int, int], str]:
    """Read (width, height) of an image as displayed, and its mode, from its header."""
    with _open_image(path) as image:
        is_rotated = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # EXIF orientation of a photograph
        return (image.size[::-1] if is_rotated else image.size), image.mode


@contextmanager
def _open_image(path: Path) -> Iterator[Image]:
    """Open an image and check its header; every defect of the file is a UserError."""
    from PIL import Image  # noqa: PLC0415  an extra

    try:
        with open_to_read(path) as file, Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > LARGEST_PIXELS:
                raise Image.DecompressionBombError
            if image.mode.startswith(_DEEP):
                raise _unreadable_image(path, "its pixels have more than 8 bits")
            yield image
    except Image.DecompressionBombError:
        raise _unreadable_image(path, f"it has more than {LARGEST_PIXELS} pixels") from None
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise _unreadable_image(path, "it is not a complete PNG, JPEG, WebP or BMP file") from error


def _unreadable_image(path: Path, reason: str) -> UserError:
    return UserError(
        f"{str(path)!r} cannot be read ({reason})",
        f"must be an 8-bit image ({', '.join(SUFFIXES)}) of up to {LARGEST_PIXELS} pixels",
        "repair or remove the file",
    )


def _require_one_size(files: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> None:
    for path, (width, height) in zip(files, sizes, strict=True):
        if (width, height) != sizes[0]:
            problem = f"{files[0].name} is {sizes[0][0]}×{sizes[0][1]} and {path.name} is {width}×{height}"
            allowed = "must have the same size, unless image_size is set"
            raise UserError(problem, allowed, "set image_size, for example to 32")


def _read_pixels(path: Path, image_size: int | None, channels: int) -> Tensor:
    """Read one image as bytes [channels, H, W]; transparent pixels become white."""
    from PIL import Image, ImageOps  # noqa: PLC0415  an extra

    with _open_image(path) as stored:
        if image_size is not None:
            stored.draft(None, (DRAFT * image_size, DRAFT * image_size))  # changes nothing but JPEG files
        image: Image.Image = ImageOps.exif_transpose(stored)
        if image.has_transparency_data:
            transparent = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", transparent.size, "white"), transparent)
        image = image.convert("L" if channels == 1 else "RGB")
        if image_size is not None:
            # Crop first, so that the filter does not see pixels outside of the square. When shrinking, Pillow widens
            # the filter, which prevents aliasing.
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            square = image.crop((left, top, left + side, top + side))
            image = square.resize((image_size, image_size), Image.Resampling.LANCZOS)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.view(image.height, image.width, channels).permute(2, 0, 1)
