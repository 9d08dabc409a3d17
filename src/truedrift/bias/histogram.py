"""A pool deposited on a uniform grid over s = −log w: (1, y, ‖y‖²) of each point on four cells, with cubic weights.

With Lagrange weights ℓ_j, Σ_i f_i H(s_i) = Σ_j H(s_j) Σ_i f_i ℓ_j(s_i) + O(h⁴) for every smooth H. One pass over the
pool therefore serves all its transforms, and no exponential is computed per point.
"""

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from truedrift.bias.quadrature import PAD, cubic_weights

Array = NDArray[np.float64]
_cubic_weights = numba.njit(inline="always", fastmath=True)(cubic_weights)


def deposit(s: Array, y: Array, step: float) -> Array:
    """Return the histogram [Q, cells, D + 2] of y [N, D] at s [Q, N] ≥ 0.

    Cell j is at s = (j − PAD)·step, and masses sum to 1.
    """
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
            # Weights of the four cells around the point
            position = s[q, i] * per_step
            cell = int(position)
            f = position - cell
            first = cell + PAD - 1
            weights = _cubic_weights(f)
            norm = 0.0
            for d in range(D):
                norm += y[i, d] * y[i, d]
            # Deposit 1, y and ‖y‖²
            for k in range(4):
                grid[q, first + k, 0] += weights[k]
                for d in range(D):
                    grid[q, first + k, 1 + d] += weights[k] * y[i, d]
                grid[q, first + k, 1 + D] += weights[k] * norm


def concatenate_grids(grids: Sequence[Array]) -> Array:
    """Concatenate histograms over queries; shorter ones are padded with empty cells."""
    cells = max(grid.shape[1] for grid in grids)
    return np.concatenate([np.pad(grid, ((0, 0), (0, cells - grid.shape[1]), (0, 0))) for grid in grids])


def coarsen(grid: Array, *, odd: bool = False) -> Array:
    """Return the histogram with steps of twice the size: each removed cell is deposited on the four around it.

    Even cells stay, and cell PAD stays at s = 0. With `odd`, odd cells stay, and cell PAD is one old step below 0.
    """
    if odd:
        grid = np.pad(grid, ((0, 0), (1, 0), (0, 0)))
    queries, cells, channels = grid.shape
    coarse = np.zeros((queries, (cells - PAD) // 2 + 2 * PAD + 2, channels))
    stay, removed = np.arange(0, cells, 2), np.arange(1, cells, 2)
    coarse[:, (stay - PAD) // 2 + PAD] = grid[:, stay]
    left = (removed - PAD - 1) // 2 + PAD
    for offset, weight in ((-1, -1 / 16), (0, 9 / 16), (1, 9 / 16), (2, -1 / 16)):
        coarse[:, left + offset] += weight * grid[:, removed]
    return coarse
