"""Images of a user's own: DIR/CLASS/*.png and the like, or images directly in DIR, which are one class "all".

DIR with the folders train and test is read split by split; any other DIR is one train split. With `image_size` s, the
central square of each image is resized to s × s by an antialiased filter; without, all images must have one size.
Files are taken in the order of their names, folders in that of theirs; what begins with a dot is passed over.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from truedrift.axes import Tensor
from truedrift.data.samples import Samples
from truedrift.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")

LARGEST_PIXELS = 1 << 26
"""Of one image, 67 million: what a small file may claim before any memory is taken."""

LARGEST_BYTES = 1 << 36
"""Of all images as they stay in memory, 64 GiB."""

LARGEST_SIZE = 4096

Channels = Literal[1, 3]
_DEEP = ("I", "F")
"""Modes with more than a byte a pixel begin so."""


def read_folder(
    root: Path, *, split: str = "train", image_size: int | None = None, channels: Channels | None = None
) -> Samples:
    """The images as bytes [N, channels, H, W]; gray if all of them are, unless `channels` says otherwise."""
    if image_size is not None and not 1 <= image_size <= LARGEST_SIZE:
        raise UserError(f"image size is {image_size}", f"allowed is 1 to {LARGEST_SIZE}", "take for example 32")
    splits = _splits(root)
    if split == "test" and "test" not in splits:
        came = f"{str(root)!r} has no test split"
        raise UserError(came, "allowed is a directory with the folders train and test", "make them")
    names = _class_names(root, splits.values())
    files, labels = _list_images(list(splits.values()) if split == "all" else [splits[split]], names)
    sizes, gray = _survey(files)
    if image_size is None:
        _require_one_size(files, sizes)
    width, height = sizes[0] if image_size is None else (image_size, image_size)
    count = channels or (1 if gray else 3)
    _require_room(len(files), count * height * width)
    values = torch.empty(len(files), count, height, width, dtype=torch.uint8)
    for row, path in enumerate(files):
        values[row] = _pixels(path, image_size, count)
    return Samples(values, torch.tensor(labels, dtype=torch.int64), tuple(names) or ("all",), "folder", flips=True)


def _splits(root: Path) -> dict[str, Path]:
    """The folder of each split that there is."""
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is no directory", "allowed is a directory of images", "check its name")
    parts = {name: root / name for name in ("train", "test")}
    return parts if all(part.is_dir() for part in parts.values()) else {"train": root}


def _class_names(root: Path, folders: Iterable[Path]) -> list[str]:
    """The folders in any split, by name, so that a class has one number in all of them; none if images are loose."""
    names = sorted({each.name for folder in folders for each in _visit(folder) if each.is_dir()})
    _require_readable(names)
    for folder in folders:
        loose = _images(folder)
        if loose and names:
            came = f"{str(folder)!r} holds {len(loose)} images beside the folders {', '.join(names[:3])}"
            raise UserError(came, "allowed are images in one folder a class, or all in one", "move them into a folder")
    for name in names or ["."]:
        if not any(_images(folder / name) for folder in folders):
            came = f"{str(root / name)!r} holds no images"
            raise UserError(came, f"allowed are {', '.join(SUFFIXES)}", "check the directory")
    return names


def _require_readable(names: Iterable[str]) -> None:
    """Names that are text: others could be neither printed nor recorded."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            came = f"the folder {name!r} has a name that is not UTF-8"
            raise UserError(came, "allowed is the name of a class, in UTF-8", "rename the folder") from None


def _list_images(folders: Sequence[Path], names: Sequence[str]) -> tuple[list[Path], list[int]]:
    """The files, and the class of each."""
    of_class = [
        (path, label)
        for folder in folders
        for label, name in enumerate(names or ["."])
        for path in _images(folder / name)
    ]
    if not of_class:
        came = f"{str(folders[0])!r} holds no images"
        raise UserError(came, f"allowed are {', '.join(SUFFIXES)}", "check the directory")
    return [path for path, _ in of_class], [label for _, label in of_class]


def _visit(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []


def _images(folder: Path) -> list[Path]:
    return [path for path in _visit(folder) if path.suffix.lower() in SUFFIXES and not path.is_dir()]


def _survey(files: Sequence[Path]) -> tuple[list[tuple[int, int]], bool]:
    """(width, height) of each image as it is shown, from its header alone; whether all of them are gray."""
    sizes, gray = [], True
    for path in files:
        with _open_image(path) as image:
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # a photograph on its side
            sizes.append(image.size[::-1] if turned else image.size)
            gray = gray and image.mode in ("1", "L", "LA")
    return sizes, gray


@contextmanager
def _open_image(path: Path) -> Iterator[Image]:
    """The image with its header read and found reasonable; whatever is wrong with the file is a mistake."""
    try:
        from PIL import Image  # noqa: PLC0415  an extra
    except ImportError:
        raise UserError(
            "Pillow is not installed", "images are read with it", "run pip install 'truedrift[train]'"
        ) from None
    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                if image.width * image.height > LARGEST_PIXELS:
                    raise Image.DecompressionBombError
                if image.mode.startswith(_DEEP):
                    raise _unreadable_image(path, "its pixels have more than 8 bits")
                yield image
    except bombs:
        raise _unreadable_image(path, f"it has more than {LARGEST_PIXELS} pixels") from None
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise _unreadable_image(path, "it is no complete PNG, JPEG, WebP or BMP") from error


def _unreadable_image(path: Path, why: str) -> UserError:
    return UserError(
        f"{str(path)!r} cannot be read ({why})",
        f"allowed are 8-bit images {', '.join(SUFFIXES)} of up to {LARGEST_PIXELS} pixels",
        "repair or remove the file",
    )


def _require_one_size(files: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> None:
    for path, size in zip(files, sizes, strict=True):
        if size != sizes[0]:
            raise UserError(
                f"{files[0].name} is {sizes[0][0]}×{sizes[0][1]} and {path.name} is {size[0]}×{size[1]}",
                "allowed is one size for all images, or an image size to resize them to",
                "give one, for example 32",
            )


def _require_room(count: int, each: int) -> None:
    if count * each > LARGEST_BYTES:
        raise UserError(
            f"{count} images of {each} bytes are {count * each / 2**30:.0f} GiB",
            f"allowed are {LARGEST_BYTES >> 30} GiB in memory",
            "take a smaller image size or fewer images",
        )


def _pixels(path: Path, image_size: int | None, channels: int) -> Tensor:
    """One image as bytes [channels, H, W]; see-through places become white."""
    from PIL import Image, ImageOps  # noqa: PLC0415  an extra

    with _open_image(path) as stored:
        image: Image.Image = ImageOps.exif_transpose(stored)
        if image.has_transparency_data:
            seen = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
        image = image.convert("L" if channels == 1 else "RGB")
        if image_size is not None:
            image = _crop_square(image, image_size)
        rows = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return rows.view(image.height, image.width, channels).permute(2, 0, 1)


def _crop_square(image: Image, size: int) -> Image:
    """The central square, resized; Pillow widens the filter when it shrinks, which is what keeps edges clean."""
    from PIL.Image import Resampling  # noqa: PLC0415  an extra

    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    # Cropped first: the filter must not see what lies outside of the square.
    square = image.crop((left, top, left + side, top + side))
    return square.resize((size, size), Resampling.LANCZOS)
