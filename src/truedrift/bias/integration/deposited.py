"""A large pool as cells: on a histogram over s, and on two of twice the step by which its error is judged.

Both of these are made from the first one, of its even and of its odd cells, because one alone may agree by chance.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.integration.cells import Cells, histogram
from truedrift.bias.integration.refinement import require_room

GRID_STEP = 1 / 128
POINTS_AS_THEY_ARE = 512
"""A pool of up to this many points needs no histogram."""


def deposited(
    s: Iterable[Float[Tensor, "some N"]], y: Float[Tensor, "N D"], step: float
) -> tuple[Cells, list[tuple[Cells, float]]]:
    """The cells of queries whose s comes block by block; the coarser ones, each with how far nodes have to move."""
    try:
        from truedrift.bias.integration.histogram import coarser, deposit, joined  # noqa: PLC0415  numba is an extra
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"{missing.name} is not installed; a pool of more than {POINTS_AS_THEY_ARE} points needs it; "
            "run pip install 'truedrift[lab]'"
        ) from None
    grids = []
    for some in s:
        largest = float(some.max())
        require_room(largest / step * max(16, (y.shape[1] + 2) / 8), largest)
        grids.append(deposit(some.numpy(), y.numpy(), step))
    grid = joined(grids)
    even, odd = (torch.from_numpy(coarser(grid, odd=odd)) for odd in (False, True))
    return histogram(torch.from_numpy(grid), step), [
        (histogram(even, 2 * step), 0.0),
        (histogram(odd, 2 * step, -step), -step),
    ]
