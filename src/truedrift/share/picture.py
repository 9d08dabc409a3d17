"""Pictures of the samples of a model: a grid of images, or a scatter plot of the first two columns."""

from collections.abc import Sequence

import torch

from truedrift.axes import Tensor
from truedrift.generators.sampling import balanced_labels, sample
from truedrift.model import Model
from truedrift.training.pictures import grid_columns, image_grid, scatter_image

POINTS = 2000
MOST_CLASSES, PER_CLASS = 20, 10
"""Largest number of rows of a picture of all classes, and images per row."""


def makes_images(model: Model) -> bool:
    """Return whether samples are shown as a grid of images: images, or arrays [N, H, W]."""
    return (model.units is None and len(model.generator.sample_shape) == 3) or _side_lengths(model) is not None


def draw_picture(
    model: Model,
    *,
    classes: Sequence[int] | None = None,
    count: int | None = None,
    seed: int = 0,
    strength: float | None = None,
) -> Tensor:
    """Draw samples as one picture.

    Args:
        model: The model.
        classes: Numbers of the classes; None: all, or the first 20.
        count: Number of samples, divided evenly among the classes; None: 10 images per class, or 2,000 points.
        seed: Seed of the noise.
        strength: Guidance strength; None: that of the model.

    Returns:
        A uint8 picture [H, W, 3]. Images have one row per class. Points show their first two columns in the color of
        their class; a single column is shown along the horizontal axis, with one strip per class.
    """
    rows = list(range(min(len(model.classes), MOST_CLASSES))) if classes is None else list(classes)
    images = makes_images(model)
    if count is None:
        count = (PER_CLASS * (PER_CLASS if len(rows) == 1 else len(rows))) if images else POINTS
    labels = balanced_labels(rows, count, equal=images)
    values = sample(model.generator, labels, seed=seed, strength=model.strength if strength is None else strength)
    if images:
        return image_grid(_as_images(model, values), grid_columns(len(labels), len(rows)))
    if values.shape[1] == 1:
        numbers = torch.Generator().manual_seed(seed)
        values = torch.cat((values, labels.unsqueeze(1) + 0.8 * torch.rand(len(labels), 1, generator=numbers)), 1)
    return scatter_image(values[:, :2], labels, values[:, :2])


def _side_lengths(model: Model) -> tuple[int, int] | None:
    """Return height and width of arrays [N, H, W]; None for other samples."""
    shape = () if model.units is None else model.units.shape
    return (shape[0], shape[1]) if len(shape) == 2 else None


def _as_images(model: Model, values: Tensor) -> Tensor:
    """Return images [N, C, H, W] in [−1, 1]; arrays are scaled from their smallest to their largest value."""
    sides = _side_lengths(model)
    if sides is None or model.units is None:
        return values
    images = model.units.to_user(values).float().reshape(len(values), 1, *sides)
    low, high = images.min(), images.max()
    return 2 * (images - low) / (high - low).clamp_min(torch.finfo(torch.float32).tiny) - 1
