"""Steps are halved until the error is small enough, for each query as often as it needs it.

The histogram's error is O(h⁴), and one of twice the step differs from it by three times as much or more. The trapezoid
rule's error is about the square of the change when every other node is left out. The larger of both, and rounding, have
to be below max(rtol·‖value‖, 1e-13·unit) for every value of a query; unit is the spread √(E‖y − T*‖²), or its square.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from truedrift.axes import Bool, Float, Tensor
from truedrift.validation import Mistake

LEVELS = 6
"""How often steps may be halved."""
FLOOR = 1e-13
ROOM = 1 << 24
"""Cells of a histogram times 16, or numbers of its channels over 8, or points × nodes: what fits, and takes seconds."""
_EPS = torch.finfo(torch.float64).eps

Solution = tuple[Tensor, Tensor]
"""A value [Q, S, D or 1], and what its norm may be wrong by [Q, S]."""
AtLevel = Callable[[Tensor, int], tuple[Tensor, list[Solution], Tensor]]
"""Queries and how often steps are halved → T* [Q, ...], the solutions, and whether they meet the tolerance [Q]."""


class NoRoom(Mistake):
    """Steps as small as that would not fit in memory."""


def require_room(elements: float, largest_s: float) -> None:
    """`elements` numbers fit in memory, for log w that ranges over `largest_s`."""
    if elements > ROOM:
        room = largest_s * ROOM / elements
        raise NoRoom(
            f"log w ranges over {largest_s:.3g} at a query; allowed is about {room:.3g} for this pool; "
            "take a larger tau, at which more than the nearest reference counts"
        )


def refined(at: AtLevel, x: Float[Tensor, "Q D"]) -> tuple[Tensor, list[Solution]]:
    """T* and the solutions, each query with steps as small as it needs them and as there is room for."""
    T_star, solutions, met = at(x, 0)
    for level in range(1, LEVELS):
        left = (~met).nonzero().squeeze(-1)
        if len(left) == 0:
            break
        try:
            T_star[left], better, met[left] = at(x[left], level)
        except NoRoom:
            break
        for kept, new in zip(solutions, better, strict=True):
            for old, now in zip(kept, new, strict=True):
                old[left] = now
    return T_star, solutions


def judged(
    values: Sequence[tuple[Tensor, Tensor]],
    coarser: Sequence[Sequence[Tensor]],
    unit: Tensor,
    rtol: float,
) -> tuple[list[Solution], Bool[Tensor, " Q"]]:
    """Values with their errors, and whether all are met; each comes with the same from every other node.

    `coarser` has all values again, once for every coarser histogram; `unit` is [Q, S or 1].
    """
    errors = [norm(value - fewer).square() / unit + 64 * _EPS * unit for value, fewer in values]
    for others in coarser:
        errors = [
            torch.maximum(error, norm(value - other) / 2)
            for error, (value, _), other in zip(errors, values, others, strict=True)
        ]
    solutions = [(value, error) for (value, _), error in zip(values, errors, strict=True)]
    met = [(error <= torch.maximum(rtol * norm(value), FLOOR * unit)).all(-1) for value, error in solutions]
    return solutions, torch.stack(met).all(0)


def norm(vectors: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch"]:
    """‖v‖ over the last axis."""
    return torch.linalg.vector_norm(vectors, dim=-1)
