"""Units of arrays: x = shift + scale · z, where z are standardized values that a model sees.

| array                       | shift               | scale                                                          |
|-----------------------------|---------------------|----------------------------------------------------------------|
| tables [N, D]               | mean of each column | standard deviation of each column; 0 if it is constant         |
| images and others [N, …]    | mean of each entry  | one standard deviation for all entries                         |

Columns of a table have different units, so each gets its own scale. The pixels of an image have the same unit; own
scales would enlarge the noise of pixels in which little happens. z of a constant column is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError

ENTRIES_AT_ONCE = 1 << 22
"""Entries converted to float64 at a time: a million rows need little memory besides their own."""


LARGEST = torch.finfo(torch.float64).max
MOST_AXES = 64
"""Most axes of an array of NumPy, one of which counts the samples."""
ROUNDING = 4 * torch.finfo(torch.float64).eps
"""A column whose range is smaller, relative to its largest magnitude, is constant up to rounding."""


def _rows_at_once(flat: Tensor) -> int:
    return max(1, ENTRIES_AT_ONCE // max(1, flat.shape[1]))


def _power_of_two(magnitude: Tensor) -> Tensor:
    """Return the largest power of two that is at most the magnitude; 1 for 0."""
    mantissa, _ = torch.frexp(magnitude)  # in [1/2, 1)
    return torch.where(magnitude > 0, magnitude / (2 * mantissa), 1)


@dataclass(frozen=True, eq=False)
class Units:
    """The map between the values of a user and those of a model.

    Args:
        shift: What is added [D], float64.
        scale: What is multiplied [D], float64, ≥ 0.
        shape: The shape of one sample of the user; D is its number of entries.

    Example:
        >>> units = Units.of(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> units.to_model(torch.tensor([[3.0, 5.0]]))
        tensor([[1., 0.]])
        >>> units.to_user(torch.tensor([[2.0, 9.0]]))
        tensor([[4., 5.]], dtype=torch.float64)
    """

    shift: Tensor
    scale: Tensor
    shape: tuple[int, ...]

    @classmethod
    def of(cls, values: Tensor) -> Units:
        """Return the units of an array [N, …]."""
        flat = values.reshape(len(values), -1)
        blocks = flat.split(_rows_at_once(flat))
        low = torch.stack([block.double().amin(0) for block in blocks]).amin(0)
        high = torch.stack([block.double().amax(0) for block in blocks]).amax(0)
        magnitude = torch.maximum(low.abs(), high.abs())
        # Divided by a power of two, which rounds nothing: squares neither overflow nor underflow.
        power = _power_of_two(magnitude)
        # Centered at a row first: a large common offset costs no digits.
        origin, zeros = flat[0].double() / power, torch.zeros(flat.shape[1], dtype=torch.float64)
        mean = origin + sum(((block.double() / power - origin).sum(0) for block in blocks), zeros) / len(flat)
        variance = sum(((block.double() / power - mean).square().sum(0) for block in blocks), zeros) / len(flat)
        shift = (mean * power).clamp(low, high)
        scale = (variance.sqrt() * power).clamp_max(LARGEST)
        scale = torch.where(high / 2 - low / 2 > ROUNDING * magnitude, scale, 0)
        if values.ndim > 2:
            power = _power_of_two(scale.max())
            scale = torch.where(scale > 0, (scale / power).square().mean().sqrt() * power, 0)
        return cls(shift, scale, tuple(values.shape[1:]))

    def to_model(self, values: Tensor) -> Tensor:
        """Return standardized float32 values [N, D] of values [N, *shape]."""
        flat = values.reshape(len(values), -1)
        varies = self.scale > 0
        power, shift, scale = self._divided()
        divisor = torch.where(varies, scale, 1)
        standardized = torch.empty(flat.shape)
        rows = _rows_at_once(flat)
        for block, result in zip(flat.split(rows), standardized.split(rows), strict=True):
            result.copy_(torch.where(varies, (block.double() / power - shift) / divisor, 0))
        return standardized

    def to_user(self, values: Tensor) -> Tensor:
        """Return values [N, *shape] in the units of the user, in float64, of standardized values [N, D]."""
        power, shift, scale = self._divided()
        found = ((shift + scale * values.double()) * power).clamp(-LARGEST, LARGEST)
        return found.reshape(len(values), *self.shape)

    def _divided(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return a power of two and both units divided by it, so that sums and differences do not overflow."""
        power = _power_of_two(torch.maximum(self.shift.abs(), self.scale))
        return power, self.shift / power, self.scale / power

    def describe(self) -> dict[str, Any]:
        """Return the units as JSON, for config.json."""
        return {"shift": self.shift.tolist(), "scale": self.scale.tolist(), "shape": list(self.shape)}

    @classmethod
    def from_description(cls, tree: Mapping[str, Any]) -> Units:
        """Return the units from JSON.

        Raises:
            UserError: If they are damaged.
        """
        try:
            shift, scale = (torch.tensor(tree[name], dtype=torch.float64) for name in ("shift", "scale"))
            shape = tuple(tree["shape"])
            fits = (
                len(shape) < MOST_AXES
                and all(type(size) is int and size >= 1 for size in shape)
                and shift.shape == scale.shape == (math.prod(shape),)
                and bool(torch.isfinite(shift).all() and torch.isfinite(scale).all() and (scale >= 0).all())
            )
        except (KeyError, TypeError, ValueError, OverflowError, RuntimeError):
            fits = False
        if not fits:
            raise UserError("the units are damaged", "must be shift, scale and shape of the data", "train it again")
        return cls(shift, scale, shape)
