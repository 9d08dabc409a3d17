"""Samples y_i with their classes c_i: images as bytes [N, C, H, W], or points [N, D].

A model sees an image as x = b/127.5 − 1 in [−1, 1], with b in 0 … 255; back it is b = round(127.5 (x + 1)), clamped.
Images stay bytes in memory: the batch is converted, never the whole set.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError


@dataclass(frozen=True)
class Samples:
    """Values y with one label each, the names of the classes, and whether a mirrored image is still of its class."""

    values: Tensor
    """uint8 [N, C, H, W] images, or float32 [N, D] points."""

    labels: Tensor
    """int64 [N], each one a position in `classes`."""

    classes: tuple[str, ...]
    name: str
    flips: bool

    def __post_init__(self) -> None:
        form = (self.values.dtype, self.values.ndim)
        if form not in ((torch.uint8, 4), (torch.float32, 2)):
            raise UserError(
                f"values of {self.name} are {self.values.dtype} {list(self.values.shape)}",
                "allowed are uint8 images [N, C, H, W] or float32 points [N, D]",
                "convert them first",
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.values.shape[:1]:
            raise UserError(
                f"labels of {self.name} are {self.labels.dtype} {list(self.labels.shape)}",
                f"allowed is int64 [{len(self.values)}]",
                "give one label a sample",
            )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise UserError(
                f"labels of {self.name} reach from {int(self.labels.min())} to {int(self.labels.max())}",
                f"allowed are 0 to {len(self.classes) - 1}, one number a class",
                "repair the labels or name every class",
            )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """(C, H, W) of an image, (D,) of a point."""
        return tuple(self.values.shape[1:])

    @property
    def is_images(self) -> bool:
        """Whether the values are images."""
        return self.values.dtype == torch.uint8

    def digest(self) -> str:
        """sha256 of values, labels and classes, in hexadecimal: which data a run was trained on."""
        sha256 = hashlib.sha256(repr((list(self.values.shape), str(self.values.dtype), self.classes)).encode())
        for tensor in (self.values, self.labels):
            sha256.update(tensor.contiguous().numpy().tobytes() if tensor.numel() else b"")
        return sha256.hexdigest()


def to_model_range(values: Tensor) -> Tensor:
    """x = b/127.5 − 1 for bytes, as float32 in [−1, 1]; points as they are."""
    return values.float().div_(127.5).sub_(1.0) if values.dtype == torch.uint8 else values


def to_uint8(images: Tensor) -> Tensor:
    """b = round(127.5 (x + 1)), clamped to 0 … 255; the inverse of `to_model` on bytes."""
    return images.detach().float().add(1.0).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)
