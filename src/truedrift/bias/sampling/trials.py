"""Σ_t e_t and Σ_t e_t e_tᵀ over trials t, e = T − T*: the loop over minibatches, compiled.

Weights are looked up, one row of (w, y − T*) for each point of the pool, and random access to that table is what takes
the time. It is therefore kept in float32, half as large; T* has to be that of the rounded table, and sums are float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from truedrift.bias.sampling.draws import draw_one, stream
from truedrift.bias.sampling.minibatch import bootstrap, br_snis, jackknife, power_sums

LARGEST_RANGE = 80.0
"""Of log w over the pool: e^{−80} still has all its digits in float32."""
SUMS = 1 << 21
"""Numbers that the sums of all blocks may take, whatever the number of trials."""
DRAWS_TOGETHER = 512
"""Minibatches are looked up together up to this many draws, so that many accesses to memory are under way at once."""

Array = NDArray[np.float64]
Table = NDArray[np.float32]


class Rule(NamedTuple):
    """Which centroids a minibatch gives: of power sums (three), or one of the others with its settings."""

    kind: int
    outputs: int
    settings: tuple[int, int] = (0, 0)


POWER_SUMS = Rule(0, 3)
JACKKNIFE = Rule(1, 1)
BOOTSTRAP, BR_SNIS = 2, 3


def bootstrap_rule(resamples: int) -> Rule:
    """2 T − mean over that many resamples."""
    return Rule(BOOTSTRAP, 1, (resamples, 0))


def br_snis_rule(iterations: int, burn_in: int) -> Rule:
    """The chain."""
    return Rule(BR_SNIS, 1, (iterations, burn_in))


def tally(
    table: Table, rule: Rule, m: int, trials: int, *, key: np.uint64, own_key: np.uint64, replacement: bool
) -> tuple[Array, Array]:
    """(Σ e [outputs, D], Σ e eᵀ [outputs, D, D]) over minibatches of m; table [N, 1 + D] holds w > 0 and y − T*.

    Minibatches are those of `key`; what an estimator draws itself is of `own_key`.
    """
    D = table.shape[1] - 1
    blocks = blocks_of(trials, rule.outputs * D * D)
    first, second = np.zeros((blocks, rule.outputs, D)), np.zeros((blocks, rule.outputs, D, D))
    _tally(table, rule.kind, *rule.settings, m, trials, key, own_key, replacement, first, second)
    return first.sum(0), second.sum(0)


def blocks_of(trials: int, numbers: int) -> int:
    """Into how many blocks trials are split, each with sums of that many numbers.

    It does not depend on the threads, so that the digits do not either.
    """
    return max(4, min(64, SUMS // numbers, trials))


def compile_now() -> None:
    """Have the loop compiled, which takes a while the first time after an installation."""
    key = np.uint64(0)
    tally(np.ones((1, 2), np.float32), POWER_SUMS, 1, 1, key=key, own_key=key, replacement=True)


@numba.njit(parallel=True, fastmath=True, cache=True)  # type: ignore[misc]
def _tally(
    table: Table,
    kind: int,
    setting: int,
    other: int,
    m: int,
    trials: int,
    key: np.uint64,
    own_key: np.uint64,
    replacement: bool,
    first: Array,
    second: Array,
) -> None:
    N, D, outputs = table.shape[0], table.shape[1] - 1, first.shape[1]
    together, a_block = max(1, DRAWS_TOGETHER // m), -(-trials // len(first))
    for block in numba.prange(len(first)):
        seen = np.full(1 if replacement else N, -1, np.int64)
        drawn, w, y = np.empty((together, m), np.uint32), np.empty((together, m)), np.empty((together, D, m))
        e = np.empty((outputs, D))
        end = min(trials, (block + 1) * a_block)
        for trial in range(block * a_block, end, together):
            some = min(together, end - trial)
            for t in range(some):
                draw_one(key, trial + t, N, replacement, seen, drawn[t])
            for t in range(some):
                _look_up(table, drawn[t], w[t], y[t])
            for t in range(some):
                if kind == 0:
                    power_sums(w[t], y[t], e)
                elif kind == 1:
                    jackknife(w[t], y[t], e)
                elif kind == BOOTSTRAP:
                    bootstrap(w[t], y[t], e, setting, stream(own_key, trial + t))
                else:
                    br_snis(w[t], y[t], e, setting, other, stream(own_key, trial + t))
                _add(e, first[block], second[block])


@numba.njit(fastmath=True, cache=True)  # type: ignore[misc]
def _look_up(table: Table, drawn: NDArray[np.uint32], w: Array, y: Array) -> None:
    """Column by column: a loop without a loop inside keeps many accesses to memory under way."""
    for i in range(len(drawn)):
        w[i] = table[drawn[i], 0]
    for d in range(len(y)):
        for i in range(len(drawn)):
            y[d, i] = table[drawn[i], 1 + d]


@numba.njit(inline="always", cache=True)  # type: ignore[misc]
def _add(e: Array, first: Array, second: Array) -> None:
    for k in range(e.shape[0]):
        for d in range(e.shape[1]):
            first[k, d] += e[k, d]
            for f in range(e.shape[1]):
                second[k, d, f] += e[k, d] * e[k, f]
