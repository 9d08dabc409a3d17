"""What a user's mistake is answered with: one sentence that says what came, what is allowed and what to do.

Only the public functions call these checks; the mathematics below them trusts its input. Shapes, names and
temperatures are always checked. Values are looked at only on request (`check_finite=True`), because that would
synchronize a device and break compilation.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

SMALLEST_TEMPERATURE = 1e-30
"""In float32 a smaller one would be lost, and its inverse with it."""

_FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class UserError(ValueError):
    """An error of the user, reported in one line; any other exception is a failure of this library.

    Args:
        problem: What is wrong. With `field`, the predicate of that field: `"is −1"`.
        allowed: What is allowed.
        fix: What to do.
        field: The option or argument that is wrong, as in `optimizer.learning_rate`.

    Example:
        >>> print(UserError("is -1", "must be greater than 0", "pass a positive number", field="learning_rate"))
        learning_rate is -1; must be greater than 0; pass a positive number
    """

    def __init__(self, problem: str, allowed: str = "", fix: str = "", *, field: str | None = None) -> None:
        super().__init__(problem, allowed, fix)
        self.problem, self.allowed, self.fix, self.field = problem, allowed, fix, field

    @property
    def summary(self) -> str:
        """The problem alone, with its field."""
        return self.problem if self.field is None else f"{self.field} {self.problem}"

    def __str__(self) -> str:
        return "; ".join(part for part in (self.summary, self.allowed, self.fix) if part)

    def in_section(self, section: str) -> UserError:
        """The same error with its field below `section`, or with the section before the problem if it has no field."""
        if self.field is None:
            return UserError(f"{section}: {self.problem}", self.allowed, self.fix)
        return UserError(self.problem, self.allowed, self.fix, field=f"{section}.{self.field}")

    def with_prefix(self, prefix: str) -> UserError:
        """The same error with `prefix` before it, such as the file that it was found in."""
        return UserError(f"{prefix}: {self.summary}", self.allowed, self.fix)


def require_choice(what: str, value: object, allowed: Iterable[str]) -> None:
    """`value` is one of the names `allowed`."""
    names = tuple(allowed)
    if value not in names:
        raise UserError(f"is {value!r}", f"allowed are {', '.join(map(repr, names))}", "choose one of them", field=what)


def require_whole(what: str, value: object, least: int, example: int) -> None:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(
            f"is {value!r}", f"allowed is an integer from {least}", f"take for example {example}", field=what
        )


def require_temperature(tau: float | Tensor, what: str = "tau") -> None:
    """τ > 0 and finite. The value of a tensor is not looked at, only its shape."""
    if isinstance(tau, Tensor):
        if tau.ndim != 0:
            raise UserError(
                f"is a tensor of shape {list(tau.shape)}",
                "allowed is a positive number or a tensor of no dimensions",
                "pass one temperature at a time, or use drift_loss for several",
                field=what,
            )
        return
    if isinstance(tau, bool) or not isinstance(tau, numbers.Real) or not SMALLEST_TEMPERATURE <= tau < math.inf:
        raise UserError(
            f"is {tau!r}",
            f"allowed is a positive finite number of at least {SMALLEST_TEMPERATURE}",
            "take the scale of the distances, for example a tenth of their median",
            field=what,
        )


def require_temperatures(temperatures: Sequence[float]) -> None:
    """At least one temperature, each one positive and finite."""
    if not isinstance(temperatures, (tuple, list)):
        raise UserError(
            f"temperatures is a {type(temperatures).__name__}",
            "allowed is a tuple or list of positive numbers",
            "pass for example (0.02, 0.05, 0.2)",
        )
    if len(temperatures) == 0:
        raise UserError(
            "temperatures is empty", "allowed is one or more positive numbers", "pass for example (0.02, 0.05, 0.2)"
        )
    for position, tau in enumerate(temperatures):
        require_temperature(tau, f"temperatures[{position}]")


def require_features(what: str, value: Tensor, axes: str) -> None:
    """A floating-point tensor [..., rows, D] with rows ≥ 1 and D ≥ 1; `axes` names the last two, as in "B, D"."""
    allowed = f"allowed is a tensor [..., {axes}]"
    _require_floating(what, value, allowed)
    if value.ndim < 2:
        raise UserError(
            f"has shape {list(value.shape)}",
            f"{allowed} with at least two dimensions",
            "add one with .unsqueeze(0)",
            field=what,
        )
    if 0 in value.shape:
        raise UserError(
            f"has shape {list(value.shape)}, which holds nothing",
            f"{allowed} with every dimension at least 1",
            "skip empty batches",
            field=what,
        )


def require_weights(what: str, value: Tensor) -> None:
    """A floating-point tensor [..., n] with n ≥ 1."""
    allowed = "allowed is a tensor [..., n] with every dimension at least 1"
    _require_floating(what, value, allowed)
    if value.ndim == 0 or 0 in value.shape:
        raise UserError(f"has shape {list(value.shape)}", allowed, "skip empty batches", field=what)


def _require_floating(what: str, value: Tensor, allowed: str) -> None:
    if not isinstance(value, Tensor):
        raise UserError(f"is a {type(value).__name__}", allowed, "convert it with torch.as_tensor", field=what)
    if value.dtype not in _FLOATING:
        raise UserError(
            f"has dtype {value.dtype}",
            "allowed are float64, float32, float16 and bfloat16",
            "call .float() on it",
            field=what,
        )


def require_matrices(**tensors: Tensor) -> None:
    """Features of two dimensions, and the same number of them in each."""
    for name, value in tensors.items():
        require_features(name, value, "rows, D")
        if value.ndim != 2:
            raise UserError(
                f"has shape {list(value.shape)}", "allowed is two dimensions", "flatten the others", field=name
            )
    require_same_dimension(**tensors)


def require_same_dimension(**features: Tensor) -> None:
    """The same D on the same device."""
    (first, a), *rest = features.items()
    for name, b in rest:
        if a.shape[-1] != b.shape[-1]:
            raise UserError(
                f"{first} has D = {a.shape[-1]} and {name} has D = {b.shape[-1]}",
                "the last dimensions must be equal",
                "take both from the same encoder",
            )
        if a.device != b.device:
            raise UserError(
                f"{first} is on {a.device} and {name} on {b.device}",
                "both must be on one device",
                f"call .to({first}.device)",
            )


def require_broadcastable(what: str, *shapes: Sequence[int]) -> None:
    """Shapes that broadcast against each other."""
    for sizes in zip(*(_from_the_end(shape, max(map(len, shapes))) for shape in shapes), strict=True):
        if len(set(sizes) - {1}) > 1:
            raise UserError(
                f"leading dimensions of {what} are {' and '.join(str(list(shape)) for shape in shapes)}",
                "they must broadcast",
                "unsqueeze or expand the missing ones",
            )


def _from_the_end(shape: Sequence[int], length: int) -> tuple[int, ...]:
    return (1,) * (length - len(shape)) + tuple(shape)


def require_mask(mask: Tensor, n: int, allowed: str, what: str = "mask") -> None:
    """A boolean mask whose last dimension runs over the n references; True = use. `allowed` names its shapes."""
    if not isinstance(mask, Tensor):
        raise UserError(
            f"is a {type(mask).__name__}",
            f"allowed is a boolean tensor {allowed}",
            "convert it with torch.as_tensor",
            field=what,
        )
    if mask.dtype is not torch.bool:
        raise UserError(
            f"has dtype {mask.dtype}", "allowed is torch.bool with True = use", "call .bool() on it", field=what
        )
    if mask.ndim < 1 or mask.shape[-1] != n:
        raise UserError(
            f"has shape {list(mask.shape)}", f"allowed is {allowed}", "give one entry a reference", field=what
        )


def require_finite(**values: Tensor | None) -> None:
    """No NaN and no infinity. Looks at values, hence only on request."""
    for name, value in values.items():
        if value is not None and not bool(torch.isfinite(value).all()):
            raise UserError(
                f"has {int((~torch.isfinite(value)).sum())} entries that are NaN or infinite",
                "allowed are finite numbers",
                "leave those rows out or repair their source",
                field=name,
            )


def require_log_kernel(log_k: Tensor) -> None:
    """What a kernel returned is below +∞ and not NaN. Looks at values, hence only on request."""
    wrong = ~(log_k < torch.inf)
    if bool(wrong.any()):
        raise UserError(
            f"the kernel returned {int(wrong.sum())} values that are NaN or +infinity",
            "allowed are logarithms of positive numbers, −infinity for none",
            "repair the kernel",
        )


def require_positive(what: str, value: float | Tensor | None, *, or_zero: bool = False) -> None:
    """Every entry of a tensor positive, or at least 0. Looks at values, hence only on request."""
    if isinstance(value, Tensor) and not bool((value >= 0 if or_zero else value > 0).all()):
        least = float(value.min())
        allowed = "allowed are numbers of at least 0" if or_zero else "allowed are positive numbers"
        raise UserError(f"has an entry of {least}", allowed, "repair its source", field=what)
