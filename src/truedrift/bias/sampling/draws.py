"""Minibatches as a pure function of (seed, stream, trial): no state, so that any part of them can be drawn again.

The i-th number of a trial is mix(key + i·γ), SplitMix64's generator with the counter given instead of counted; its
upper 53 bits choose a point of the pool. Without replacement a point that the trial already has is drawn again.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


def key_of(seed: int, *path: int) -> np.uint64:
    """The key of a stream: of a seed, and of the numbers that name the stream under it."""
    with np.errstate(over="ignore"):
        key = _mix.py_func(np.uint64(seed) + _GOLDEN)
        for step in path:
            key = _mix.py_func(key + np.uint64(step + 1) * _GOLDEN)
    return key


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def stream(key: np.uint64, trial: int) -> np.uint64:
    """The key of one trial."""
    return _mix(key + np.uint64(trial) * _GOLDEN)


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def uniform(of_trial: np.uint64, counter: int) -> float:
    """A number in [0, 1): the one of that counter, from 1."""
    return np.int64(_mix(of_trial + np.uint64(counter) * _GOLDEN) >> _11) * 2.0**-53  # signed: one instruction


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def draw_one(
    key: np.uint64, trial: int, N: int, replacement: bool, seen: NDArray[np.int64], drawn: NDArray[np.uint32]
) -> None:
    """Fill `drawn` with the trial's points. `seen` [N] holds for each point the last trial that had it, −1 for none."""
    of_trial = stream(key, trial)
    if replacement:
        for i in range(len(drawn)):
            drawn[i] = np.uint32(uniform(of_trial, i + 1) * N)
        return
    counter = 0
    for i in range(len(drawn)):
        while True:
            counter += 1
            point = np.uint32(uniform(of_trial, counter) * N)
            if seen[point] != trial:
                break
        seen[point] = trial
        drawn[i] = point


@numba.njit(cache=True)  # type: ignore[misc]
def draw(key: np.uint64, first: int, trials: int, m: int, N: int, replacement: bool) -> NDArray[np.uint32]:
    """[trials, m] points of a pool of N, for trials `first`, `first` + 1, …"""
    points = np.empty((trials, m), np.uint32)
    seen = np.full(1 if replacement else N, -1, np.int64)
    for t in range(trials):
        draw_one(key, first + t, N, replacement, seen, points[t])
    return points
