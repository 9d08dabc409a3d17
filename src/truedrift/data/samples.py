"""Samples y_i with their classes c_i: images as bytes [N, C, H, W], or points [N, D].

A model sees an image as x = b/127.5 − 1 in [−1, 1], with b in 0 … 255; the inverse is
b = round(127.5 (x + 1)), clamped. Images stay bytes in memory; only batches are converted.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.data.units import Units
from truedrift.errors import UserError, list_names, suggest_name
from truedrift.summary import summarize


@dataclass(frozen=True)
class Samples:
    """Values y with one label per sample.

    Args:
        values: uint8 images [N, C, H, W], or float32 points [N, D].
        labels: int64 [N], positions in `classes`.
        classes: Names of the classes.
        name: Name of the data set.
        flips: Whether a mirrored image still belongs to its class.
        units: Units of points that were standardized; None: the values are those of the user.

    Example:
        >>> samples = Samples(torch.zeros(3, 2), torch.tensor([0, 1, 1]), ("a", "b"), "points", flips=False)
        >>> len(samples), samples.sample_shape, samples.is_images
        (3, (2,), False)
    """

    values: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    flips: bool
    units: Units | None = None

    def __post_init__(self) -> None:
        if (self.values.dtype, self.values.ndim) not in ((torch.uint8, 4), (torch.float32, 2)):
            problem = f"values of {self.name} are {self.values.dtype} {list(self.values.shape)}"
            allowed = "must be uint8 images [N, C, H, W] or float32 points [N, D]"
            raise UserError(problem, allowed, "convert them first")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.values.shape[:1]:
            problem = f"labels of {self.name} are {self.labels.dtype} {list(self.labels.shape)}"
            raise UserError(problem, f"must be int64 [{len(self.values)}]", "pass one label per sample")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            problem = f"labels of {self.name} range from {int(self.labels.min())} to {int(self.labels.max())}"
            allowed = f"must be 0 to {len(self.classes) - 1}, one number per class"
            raise UserError(problem, allowed, "repair the labels or name every class")

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return summarize(self)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) for images, (D,) for points."""
        return tuple(self.values.shape[1:])

    @property
    def is_images(self) -> bool:
        """Whether the values are images."""
        return self.values.dtype == torch.uint8

    def take(self, ids: Tensor) -> "Samples":
        """Return the samples at these positions, in their order.

        Args:
            ids: int64 [K].

        Returns:
            K samples.

        Example:
            >>> samples = Samples(torch.zeros(3, 2), torch.tensor([0, 1, 1]), ("a", "b"), "points", flips=False)
            >>> samples.take(torch.tensor([2, 0])).labels
            tensor([1, 0])
        """
        return replace(self, values=self.values[ids], labels=self.labels[ids])

    def select_classes(self, names: Sequence[str]) -> "Samples":
        """Return the samples of some classes.

        Args:
            names: Names of the classes. Class `names[k]` gets the label k. The samples keep their order.

        Returns:
            The samples of these classes. Their names are added to the name of the data set, for protocols and messages.

        Raises:
            UserError: If there is no such class, or a name is given twice.

        Example:
            >>> samples = Samples(torch.zeros(3, 2), torch.tensor([0, 1, 2]), ("a", "b", "c"), "points", flips=False)
            >>> chosen = samples.select_classes(["c", "a"])
            >>> chosen.labels, chosen.name
            (tensor([1, 0]), 'points (c, a)')
        """
        _require_classes(names, self.classes)
        numbers = torch.full((len(self.classes),), -1)
        numbers[[self.classes.index(name) for name in names]] = torch.arange(len(names))
        labels = numbers[self.labels]
        chosen = labels >= 0
        listed = ", ".join(names) if len(names) <= LISTED else f"{len(names)} of {len(self.classes)} classes"
        return replace(
            self,
            values=self.values[chosen],
            labels=labels[chosen],
            classes=tuple(names),
            name=f"{self.name} ({listed})",
        )

    def digest(self) -> str:
        """Compute the sha256 of values, labels and classes in hexadecimal, to identify the data of a run."""
        sha256 = hashlib.sha256(repr((list(self.values.shape), str(self.values.dtype), self.classes)).encode())
        for tensor in (self.values, self.labels):
            sha256.update(tensor.contiguous().numpy().data if tensor.numel() else b"")
        return sha256.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return digest, sample shape and class names, and of arrays units and counts, as config.json has them."""
        described = {
            "sha256": self.digest(),
            "sample_shape": list(self.sample_shape),
            "classes": list(self.classes),
        }
        if self.units is None:
            return described
        return described | {"units": self.units.describe(), "counts": self.counts().tolist()}

    def counts(self) -> Tensor:
        """Return the number of samples of each class [C]."""
        return self.labels.bincount(minlength=len(self.classes))


LISTED = 10
"""Largest number of classes that are listed in the name of a selection."""


def _require_classes(names: Sequence[str], classes: Sequence[str]) -> None:
    """Require names of existing classes, at least one, each once."""
    unknown = [name for name in names if name not in classes]
    if unknown or not names:
        problem = f"contains {unknown[0]!r}" if unknown else "is empty"
        fix = suggest_name(unknown[0], classes, "use these names") if unknown else "use these names"
        raise UserError(problem, f"must be among {list_names(classes)}", fix, field="classes")
    repeated = [name for k, name in enumerate(names) if name in names[:k]]
    if repeated:
        problem = f"contains {repeated[0]!r} twice"
        raise UserError(problem, "must name every class at most once", "leave it out", field="classes")


def to_model_range(values: Tensor) -> Tensor:
    """Convert bytes b to x = b/127.5 − 1, the values that a model sees.

    Args:
        values: uint8 images of any shape, or points of another dtype.

    Returns:
        float32 in [−1, 1] of the same shape; points unchanged.

    Example:
        >>> to_model_range(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([-1.,  1.])
    """
    return values.float().div_(127.5).sub_(1.0) if values.dtype == torch.uint8 else values


def to_uint8(images: Tensor) -> Tensor:
    """Convert x to b = round(127.5 (x + 1)), clamped to 0 … 255: the inverse of `to_model_range` on bytes.

    Args:
        images: Floating-point images of any shape. Values outside of [−1, 1] are clamped.

    Returns:
        uint8 of the same shape, without gradient.

    Example:
        >>> to_uint8(torch.tensor([-1.0, 0.2, 3.0]))
        tensor([  0, 153, 255], dtype=torch.uint8)
    """
    return images.detach().float().add(1.0).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8)
