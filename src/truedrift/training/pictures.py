"""The picture of a run at a step: the same noise every time, through the averaged weights, at strength 1."""

from __future__ import annotations

from pathlib import Path

import torch

from truedrift.data.samples import Samples
from truedrift.generators.base import Generator
from truedrift.generators.sampling import sample
from truedrift.training.grid import columns_for, image_grid, point_map, write_png

SEED = 0
IMAGES_OF_A_CLASS, CLASSES, POINTS = 10, 20, 2000


def picture(generator: Generator, samples: Samples, device: torch.device, path: Path) -> Path:
    """Write the picture of the generator's samples."""
    classes = len(samples.classes)
    if samples.is_images:
        shown = min(classes, CLASSES)
        count = IMAGES_OF_A_CLASS**2 if classes == 1 else shown * IMAGES_OF_A_CLASS
        labels = torch.arange(shown).repeat_interleave(count // shown)
        images = sample(generator, labels, seed=SEED, device=device)
        return write_png(image_grid(images, columns_for(count, shown)), path)
    labels = torch.arange(POINTS) % classes
    points = sample(generator, labels, seed=SEED, device=device)
    return write_png(point_map(points[:, :2], labels, samples.values[:POINTS, :2]), path)
