"""Checks of arguments that several functions of this package have in common."""

import numbers
from collections.abc import Sequence

from truedrift.axes import Tensor
from truedrift.errors import UserError, short_repr
from truedrift.tensor_checks import require_finite, require_matrices, require_temperature

_LARGEST_SEED = (1 << 63) - 1
LARGEST_SIZE = 10**15
"""Larger integers are not exact in float64."""


def read_sizes(n: int | Sequence[int], minimum: int = 1, field: str = "n") -> tuple[int, ...]:
    """Return one n or several as a tuple; require integers of at least `minimum`."""
    sizes = tuple(n) if isinstance(n, Sequence) else (n,)
    fix = "pass for example 4, 8 and 16"
    if not sizes or not all(is_size(size, minimum) for size in sizes):
        raise UserError(f"is {short_repr(n)}", f"must be one or more integers ≥ {minimum}", fix, field=field)
    if max(sizes) > LARGEST_SIZE:
        raise UserError(f"is {short_repr(n)}", f"must be at most {LARGEST_SIZE}", fix, field=field)
    return tuple(map(int, sizes))


def is_size(size: object, minimum: int = 1) -> bool:
    """Return whether `size` is an integer of at least `minimum`."""
    return isinstance(size, numbers.Integral) and not isinstance(size, bool) and int(size) >= minimum


def require_points(tau: float, **points: Tensor) -> None:
    """Require a temperature, and finite matrices [rows, D] with the same D."""
    require_temperature(tau)
    require_matrices(**points)
    require_finite(**points)


def require_distinct(estimators: Sequence[str]) -> None:
    """Require one or more different names."""
    if not estimators or len(set(estimators)) < len(estimators):
        names = ", ".join(estimators) or "empty"
        raise UserError(f"are {names}", "must be one or more different names", "pass each once", field="estimators")


def require_seed(seed: int) -> None:
    """Require a seed that `torch.Generator` accepts."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        allowed = f"must be an integer from 0 to {_LARGEST_SEED}"
        raise UserError(f"is {short_repr(seed)}", allowed, "pass for example 0", field="seed")
