"""A pool deposited on a uniform grid over s = −log w: (1, y, ‖y‖²) of each point on four cells, with cubic weights.

With Lagrange weights ℓ_j, Σ_i f_i H(s_i) = Σ_j H(s_j) Σ_i f_i ℓ_j(s_i) + O(h⁴) for every smooth H: one pass over the
pool serves every transform of it, and no exponential is taken for a point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from truedrift.bias.quadrature import PAD

Array = NDArray[np.float64]


def deposit(s: Array, y: Array, step: float) -> Array:
    """[Q, cells, D + 2] of s [Q, N] ≥ 0 and y [N, D]: cell j is at s = (j − PAD)·step, and masses sum to 1."""
    cells = int(s.max() / step) + 2 * PAD + 2
    grid = np.zeros((len(s), cells, y.shape[1] + 2))
    _deposit(s, y, 1 / step, grid)
    grid /= len(y)
    return grid


@numba.njit(parallel=True, fastmath=True, cache=True)  # type: ignore[misc]
def _deposit(s: Array, y: Array, per_step: float, grid: Array) -> None:
    queries, N = s.shape
    D = y.shape[1]
    for q in numba.prange(queries):
        for i in range(N):
            position = s[q, i] * per_step
            cell = int(position)
            f = position - cell
            first = cell + PAD - 1
            weights = (
                -f * (f - 1) * (f - 2) / 6,
                (f + 1) * (f - 1) * (f - 2) / 2,
                -(f + 1) * f * (f - 2) / 2,
                (f + 1) * f * (f - 1) / 6,
            )
            norm = 0.0
            for d in range(D):
                norm += y[i, d] * y[i, d]
            for k in range(4):
                grid[q, first + k, 0] += weights[k]
                for d in range(D):
                    grid[q, first + k, 1 + d] += weights[k] * y[i, d]
                grid[q, first + k, 1 + D] += weights[k] * norm


def concatenate_grids(grids: Sequence[Array]) -> Array:
    """The histograms of some queries after another, with as many cells as the longest has."""
    cells = max(grid.shape[1] for grid in grids)
    return np.concatenate([np.pad(grid, ((0, 0), (0, cells - grid.shape[1]), (0, 0))) for grid in grids])


def coarsen(grid: Array, *, odd: bool = False) -> Array:
    """The histogram with steps of twice the size, made of this one: a cell that falls away goes to the four around it.

    Even cells stay, cell PAD at s = 0 among them; or the odd ones, and cell PAD is then one old step below.
    """
    if odd:
        grid = np.pad(grid, ((0, 0), (1, 0), (0, 0)))
    queries, cells, channels = grid.shape
    coarse = np.zeros((queries, (cells - PAD) // 2 + 2 * PAD + 2, channels))
    stay, fall = np.arange(0, cells, 2), np.arange(1, cells, 2)
    coarse[:, (stay - PAD) // 2 + PAD] = grid[:, stay]
    left = (fall - PAD - 1) // 2 + PAD
    for offset, weight in ((-1, -1 / 16), (0, 9 / 16), (1, 9 / 16), (2, -1 / 16)):
        coarse[:, left + offset] += weight * grid[:, fall]
    return coarse
