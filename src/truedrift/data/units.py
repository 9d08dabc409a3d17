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


def _rows_at_once(flat: Tensor) -> int:
    return max(1, ENTRIES_AT_ONCE // max(1, flat.shape[1]))


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
        # Centered at a row first: a large common offset costs no digits.
        origin, zeros = flat[0].double(), torch.zeros(flat.shape[1], dtype=torch.float64)
        shift = origin + sum(((block.double() - origin).sum(0) for block in blocks), zeros) / len(flat)
        scale = (sum(((block.double() - shift).square().sum(0) for block in blocks), zeros) / len(flat)).sqrt()
        scale = torch.where(scale > 1e-12 * shift.abs(), scale, 0)
        if values.ndim > 2:
            scale = torch.where(scale > 0, scale.square().mean().sqrt(), 0)
        return cls(shift, scale, tuple(values.shape[1:]))

    def to_model(self, values: Tensor) -> Tensor:
        """Return standardized float32 values [N, D] of values [N, *shape]."""
        flat = values.reshape(len(values), -1)
        divisor, varies = torch.where(self.scale > 0, self.scale, 1), self.scale > 0
        standardized = torch.empty(flat.shape)
        rows = _rows_at_once(flat)
        for block, result in zip(flat.split(rows), standardized.split(rows), strict=True):
            result.copy_((block.double() - self.shift) / divisor * varies)
        return standardized

    def to_user(self, values: Tensor) -> Tensor:
        """Return values [N, *shape] in the units of the user, in float64, of standardized values [N, D]."""
        return (self.shift + self.scale * values.double()).reshape(len(values), *self.shape)

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
            shape = tuple(map(int, tree["shape"]))
            fits = shift.shape == scale.shape == (math.prod(shape),) and bool(torch.isfinite(shift + scale).all())
        except (KeyError, TypeError, ValueError, RuntimeError):
            fits = False
        if not fits:
            raise UserError("the units are damaged", "must be shift, scale and shape of the data", "train it again")
        return cls(shift, scale, shape)
