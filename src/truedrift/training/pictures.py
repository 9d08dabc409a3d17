"""Samples as a picture: a row a class for images, a map of points for the plane.

The picture of a run at a step: the same noise every time, through the averaged weights, at strength 1.
"""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path

import torch

from truedrift.axes import Tensor
from truedrift.data.samples import Samples, to_uint8
from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.sampling import sample
from truedrift.storage import write_atomically

POINT_PIXELS = 480
SMALLEST_SIDE = 32
"""Pixels of an image in the grid: smaller ones are enlarged by a whole factor."""
GAP = 2
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
    """[N, C, H, W] in [−1, 1] as one uint8 picture [H', W', 3], row by row."""
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
    """Points [N, 2] in the colors of their classes over the data in gray, as a uint8 picture [H, W, 3]."""
    low, high = data.amin(0), data.amax(0)
    margin = 0.15 * (high - low).clamp_min(1e-6)
    low, size = low - margin, (high - low + 2 * margin).max()
    picture = torch.full((POINT_PIXELS, POINT_PIXELS, 3), 255, dtype=torch.uint8)
    palette = torch.tensor(COLORS, dtype=torch.uint8)
    _dots(picture, (data - low) / size, torch.tensor(DATA_COLOR, dtype=torch.uint8).expand(len(data), 3))
    _dots(picture, (points - low) / size, palette[labels % len(COLORS)])
    return picture


def _dots(picture: Tensor, where: Tensor, colors: Tensor) -> None:
    """Squares of 3 pixels; points outside are left out."""
    side = len(picture)
    pixel = (where * side).long()
    inside = ((pixel >= 1) & (pixel < side - 1)).all(-1) & torch.isfinite(where).all(-1)
    x, y, colors = pixel[inside, 0], side - 1 - pixel[inside, 1], colors[inside]
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            picture[y + dy, x + dx] = colors


def grid_columns(count: int, rows: int) -> int:
    """Pictures in a row: a row a class, or a square where there is one class."""
    return math.isqrt(max(0, count - 1)) + 1 if rows == 1 else max(1, count // rows)


def require_writable_file(path: Path) -> None:
    """Nothing is there yet, or a file: a device or a pipe would be replaced by the renaming."""
    if path.exists() and not path.is_file():
        came = f"{str(path)!r} is {'a directory' if path.is_dir() else 'no regular file'}"
        raise UserError(came, "allowed is a new file, or one to replace", "name another one")


def write_png(picture: Tensor, path: Path) -> Path:
    """The picture as a PNG, whole or not at all."""
    from PIL import Image  # noqa: PLC0415  an extra

    require_writable_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = BytesIO()
    Image.fromarray(picture.numpy()).save(content, format="PNG")
    write_atomically(path, content.getvalue(), sync=False)
    return path


SEED = 0
IMAGES_OF_A_CLASS, CLASSES, POINTS = 10, 20, 2000


def write_sample_picture(generator: Generator, samples: Samples, device: torch.device, path: Path) -> Path:
    """Write the picture of the generator's samples."""
    classes = len(samples.classes)
    if samples.is_images:
        shown = min(classes, CLASSES)
        count = IMAGES_OF_A_CLASS**2 if classes == 1 else shown * IMAGES_OF_A_CLASS
        labels = torch.arange(shown).repeat_interleave(count // shown)
        images = sample(generator, labels, seed=SEED, device=device)
        return write_png(image_grid(images, grid_columns(count, shown)), path)
    labels = torch.arange(POINTS) % classes
    points = sample(generator, labels, seed=SEED, device=device)
    return write_png(scatter_image(points[:, :2], labels, samples.values[:POINTS, :2]), path)
