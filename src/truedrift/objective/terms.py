"""What a path of the drift loss (general or Gram) returns: the loss, and the quantities that the report needs."""

from dataclasses import dataclass

from truedrift.axes import Tensor
from truedrift.field.matching import Columns

SMALLEST_BLOCK = 16
"""Smallest number of positives in a block of the energy distance, if there are several blocks."""


def positive_blocks(g: int, n: int) -> tuple[int, int]:
    """Return the number K of blocks of n positives and the size b of a block, at least g and `SMALLEST_BLOCK` if K > 1.

    The K·b² distances within the blocks are then about as many as the g·n from the generated features. Fewer than K
    positives are left over.
    """
    K = max(1, n // max(g, SMALLEST_BLOCK))
    return K, n // K


@dataclass(frozen=True)
class LossTerms:
    """The result of a path (general or Gram): the loss, and the quantities that the report needs."""

    loss: Tensor
    negatives: int
    distances: Tensor
    weight_neg: Tensor | None
    mean_square: Tensor
    """[..., T] mean V_τ² with relative masses."""
    largest_log_mass: Tensor
    """[..., T] logarithm of the mass that they are relative to; 0 for the separate form."""
    log_k: Tensor | None = None
    """[..., T, n, columns] of a custom kernel, own columns masked; None for −d/τ, computed again from the distances."""
    squared_pos: Tensor | None = None
    """[..., K, b, b] squared distances among the positives of every block (`positive_blocks`), or None; then `pos` has
    the scaled positives [..., n, D]."""
    pos: Tensor | None = None
    unit: float | Tensor = 1.0
    """The distance of two rows of `pos` divided by the distance that enters the kernel."""
    fresh: bool = False
    columns: Columns | None = None
    log_ratio: Tensor | None = None
