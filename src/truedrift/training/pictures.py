"""Pictures and files of samples: rows of images per class, or a scatter plot of points in the plane.

The picture of a run at a step uses the same noise every time, the averaged weights, and the smallest strength.
"""

import math
import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.data.samples import Samples, to_model_range, to_uint8
from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.sampling import sample
from truedrift.progress import Progress, no_progress
from truedrift.storage import write_atomically

POINT_PIXELS = 480
SMALLEST_SIDE = 32
"""Smallest side of an image in the grid, in pixels. Smaller images are enlarged by an integer factor."""
GAP = 2
LONGEST_FOLDER = 60
COLORS = (
    (0, 119, 204),
    (214, 69, 65),
    (1, 113, 0),
    (190, 120, 0),
    (130, 60, 160),
    (0, 130, 130),
    (120, 120, 0),
    (200, 60, 140),
    (90, 90, 90),
    (120, 70, 30),
)
DATA_COLOR = (215, 215, 215)


def image_grid(images: Tensor, columns: int) -> Tensor:
    """Arrange images row by row as one picture.

    Args:
        images: Images [N, C, H, W] in [−1, 1].
        columns: Images per row.

    Returns:
        A uint8 picture [H', W', 3].
    """
    pictures = to_uint8(images)
    if pictures.shape[1] == 1:
        pictures = pictures.expand(-1, 3, -1, -1)
    factor = max(1, -(-SMALLEST_SIDE // max(pictures.shape[-2:])))
    pictures = pictures.repeat_interleave(factor, -1).repeat_interleave(factor, -2)
    N, _, H, W = pictures.shape
    rows = -(-N // columns)
    grid = torch.full((3, rows * (H + GAP) + GAP, columns * (W + GAP) + GAP), 255, dtype=torch.uint8)
    for position, picture in enumerate(pictures):
        top, left = GAP + (position // columns) * (H + GAP), GAP + (position % columns) * (W + GAP)
        grid[:, top : top + H, left : left + W] = picture
    return grid.permute(1, 2, 0).contiguous()


def scatter_image(points: Tensor, labels: Tensor, data: Tensor) -> Tensor:
    """Draw points in the colors of their classes over the data in gray.

    Args:
        points: Points [N, 2].
        labels: One class per point [N].
        data: Points of the data [M, 2], which set the limits of the picture.

    Returns:
        A uint8 picture [H, W, 3].
    """
    low, high = data.amin(0), data.amax(0)
    margin = 0.15 * (high - low).clamp_min(1e-6)
    low, size = low - margin, (high - low + 2 * margin).max()
    picture = torch.full((POINT_PIXELS, POINT_PIXELS, 3), 255, dtype=torch.uint8)
    palette = torch.tensor(COLORS, dtype=torch.uint8)
    _draw_dots(picture, (data - low) / size, torch.tensor(DATA_COLOR, dtype=torch.uint8).expand(len(data), 3))
    _draw_dots(picture, (points - low) / size, palette[labels % len(COLORS)])
    return picture


def _draw_dots(picture: Tensor, positions: Tensor, colors: Tensor) -> None:
    """Draw squares of 3 × 3 pixels at positions in [0, 1]². Points outside are left out."""
    side = len(picture)
    pixel = (positions * side).long()
    inside = ((pixel >= 1) & (pixel < side - 1)).all(-1) & torch.isfinite(positions).all(-1)
    x, y, colors = pixel[inside, 0], side - 1 - pixel[inside, 1], colors[inside]
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            picture[y + dy, x + dx] = colors


COLUMNS = 10
"""Largest number of images in a row of a grid."""


def grid_columns(count: int, classes: int) -> int:
    """Return the number of columns, at most ten: the images of one class in a row, or a square for a single class.

    Example:
        >>> [grid_columns(100, classes) for classes in (1, 2, 20)]
        [10, 10, 5]
    """
    return min(COLUMNS, math.isqrt(max(0, count - 1)) + 1 if classes == 1 else max(1, count // classes))


def class_grid(images: Tensor, classes: int) -> Tensor:
    """Arrange images of several classes as one picture; every class starts a new row.

    Args:
        images: Images [N, C, H, W] in [−1, 1], class by class, with equally many of each class.
        classes: The number of classes.

    Returns:
        A uint8 picture [H', W', 3], at most ten images wide.
    """
    columns, per_class = grid_columns(len(images), classes), len(images) // classes
    rows = -(-per_class // columns) if classes > 1 else 0
    if rows * columns > per_class:  # white images fill the last row of each class
        white = images.new_ones(classes, rows * columns - per_class, *images.shape[1:])
        images = torch.cat([images.unflatten(0, (classes, per_class)), white], 1).flatten(0, 1)
    return image_grid(images, columns)


def class_folders(classes: Sequence[str]) -> list[str]:
    """Return one folder name per class: its name, and its number before it if names would not differ.

    Example:
        >>> class_folders(["cat", "dog"]), class_folders(["a/b", "a:b"])
        (['cat', 'dog'], ['000-a_b', '001-a_b'])
    """
    names = [re.sub(r"[^\w .,()+-]", "_", name).strip(" .")[:LONGEST_FOLDER] for name in classes]
    if all(names) and len({name.casefold() for name in names}) == len(names):
        return names
    return [f"{number:03d}-{name}" for number, name in enumerate(names)]


def require_writable_file(path: Path) -> None:
    """Require that the path is free or a regular file. Renaming would replace a device or a pipe."""
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "not a regular file"
        raise UserError(f"{str(path)!r} is {kind}", "must be a new file or a file to replace", "choose another path")


def write_png(picture: Tensor, path: Path) -> Path:
    """Write the picture as a PNG, completely or not at all.

    Args:
        picture: uint8 [H, W, 3] on the CPU, as `image_grid` and `scatter_image` return it.
        path: The file, new or to be replaced. Its directory is made if it is missing.

    Returns:
        The same path.

    Raises:
        UserError: If the path is a directory, a device or a pipe.
    """
    from PIL import Image  # noqa: PLC0415  an extra

    require_writable_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = BytesIO()
    Image.fromarray(picture.numpy()).save(content, format="PNG")
    write_atomically(path, content.getvalue(), sync=False)
    return path


SEED = 0
IMAGES_PER_CLASS, LARGEST_CLASS_COUNT, POINTS = 10, 20, 2000


def write_real_picture(samples: Samples, path: Path) -> Path | None:
    """Write a picture of training images, arranged as the pictures of samples are; None for points.

    Args:
        samples: The training data.
        path: The file.

    Returns:
        The path, or None if the data are not images.
    """
    if not samples.is_images:
        return None
    classes = len(samples.classes)
    shown, each = min(classes, LARGEST_CLASS_COUNT), IMAGES_PER_CLASS**2 if classes == 1 else IMAGES_PER_CLASS
    rows = [(samples.labels == label).nonzero().flatten()[:each] for label in range(shown)]
    size = max(map(len, rows))
    # A class with few images has an incomplete row.
    images = torch.full((shown, size, *samples.sample_shape), 255, dtype=torch.uint8)
    for row, found in enumerate(rows):
        images[row, : len(found)] = samples.values[found]
    return write_png(image_grid(to_model_range(images.flatten(0, 1)), grid_columns(shown * size, shown)), path)


def write_sample_picture(
    generator: Generator, samples: Samples, device: torch.device, path: Path, *, strength: float = 1.0
) -> Path:
    """Write a picture of samples of the generator."""
    classes = len(samples.classes)
    if samples.is_images:
        rows = min(classes, LARGEST_CLASS_COUNT)
        count = IMAGES_PER_CLASS**2 if classes == 1 else rows * IMAGES_PER_CLASS
        labels = torch.arange(rows).repeat_interleave(count // rows)
        images = sample(generator, labels, seed=SEED, strength=strength, device=device)
        return write_png(class_grid(images, rows), path)
    labels = torch.arange(POINTS) % classes
    points = sample(generator, labels, seed=SEED, strength=strength, device=device)
    return write_png(scatter_image(_first_two(points), labels, _first_two(samples.values[:POINTS])), path)


def _first_two(points: Tensor) -> Tensor:
    """Return two columns [N, 2]: the first two, or one column and zeros."""
    return points[:, :2] if points.shape[1] > 1 else torch.cat((points, torch.zeros_like(points)), 1)


# ---- Files of samples ----


def write_samples(
    path: Path,
    form: str,
    labels: Tensor,
    values: Tensor,
    classes: Sequence[str],
    progress: Progress = no_progress,
) -> None:
    """Write samples [N, *sample_shape] and their labels [N].

    Args:
        path: The file, or for "folder" the directory.
        form: "grid": one PNG, a grid of images or a scatter plot of points. "folder": one PNG per sample, named by its
            number, in one folder per class, named by the class. "npz": the arrays `images` uint8 [N, H, W, C] or
            `points`, and `labels`, as evaluation tools read them.
        labels: The class of each sample.
        values: Images in [−1, 1], or points.
        classes: The names of all classes.
        progress: Called with a description, the number of files written, and their number.
    """
    if form == "folder":
        folders = class_folders(classes)
        for number, (label, image) in enumerate(zip(labels.tolist(), to_uint8(values), strict=True)):
            pixels = image.expand(3, -1, -1).permute(1, 2, 0).contiguous()
            write_png(pixels, path / folders[label] / f"{number:06d}.png")
            progress("writing samples", number + 1, len(labels))
    elif form == "npz":
        tensors = {"images": to_uint8(values).permute(0, 2, 3, 1)} if values.ndim == 4 else {"points": values}
        _write_npz(path, {name: tensor.numpy() for name, tensor in (tensors | {"labels": labels}).items()})
    elif values.ndim == 4:
        counts = labels.unique_consecutive(return_counts=True)[1].tolist()
        write_png(class_grid(values, len(counts) if len(set(counts)) == 1 else 1), path)
    else:
        write_png(scatter_image(_first_two(values), labels, _first_two(values)), path)


def write_arrays(path: Path, values: Tensor, labels: Tensor, classes: Sequence[str]) -> None:
    """Write samples of a run on arrays: X in the user's units and, if there are several classes, y.

    Args:
        path: The .npz file.
        values: X [N, …].
        labels: The number of the class of each sample.
        classes: Names of the classes. In y they are integers if all of them are, else text.
    """
    import numpy as np  # noqa: PLC0415  an extra

    arrays: dict[str, Any] = {"X": values.numpy()}
    if len(classes) > 1:
        names = np.array([classes[k] for k in labels.tolist()])
        are_integers = all(name.removeprefix("-").isdecimal() for name in classes)
        arrays["y"] = names.astype("int64") if are_integers else names
    _write_npz(path, arrays)


def _write_npz(path: Path, arrays: dict[str, Any]) -> None:
    import numpy as np  # noqa: PLC0415  an extra

    content = BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getvalue())
