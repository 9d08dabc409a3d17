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
    """What a user did, in one sentence; any other ValueError is a failure of ours."""


def user_error(came: str, allowed: str, do: str) -> UserError:
    """The error to raise: what came; what is allowed; what to do."""
    return UserError(f"{came}; {allowed}; {do}")


def require_choice(what: str, value: object, allowed: Iterable[str]) -> None:
    """`value` is one of the names `allowed`."""
    names = tuple(allowed)
    if value not in names:
        raise user_error(f"{what} is {value!r}", f"allowed are {', '.join(map(repr, names))}", "choose one of them")


def require_whole(what: str, value: object, least: int, example: int) -> None:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise user_error(f"{what} is {value!r}", f"allowed is an integer from {least}", f"take for example {example}")


def require_temperature(tau: float | Tensor, what: str = "tau") -> None:
    """τ > 0 and finite. The value of a tensor is not looked at, only its shape."""
    if isinstance(tau, Tensor):
        if tau.ndim != 0:
            raise user_error(
                f"{what} is a tensor of shape {list(tau.shape)}",
                "allowed is a positive number or a tensor of no dimensions",
                "pass one temperature at a time, or use drift_loss for several",
            )
        return
    if isinstance(tau, bool) or not isinstance(tau, numbers.Real) or not SMALLEST_TEMPERATURE <= tau < math.inf:
        raise user_error(
            f"{what} is {tau!r}",
            f"allowed is a positive finite number of at least {SMALLEST_TEMPERATURE}",
            "take the scale of the distances, for example a tenth of their median",
        )


def require_temperatures(temperatures: Sequence[float]) -> None:
    """At least one temperature, each one positive and finite."""
    if not isinstance(temperatures, (tuple, list)):
        came = f"temperatures is a {type(temperatures).__name__}"
        raise user_error(came, "allowed is a tuple or list of positive numbers", "pass for example (0.02, 0.05, 0.2)")
    if len(temperatures) == 0:
        raise user_error(
            "temperatures is empty", "allowed is one or more positive numbers", "pass for example (0.02, 0.05, 0.2)"
        )
    for position, tau in enumerate(temperatures):
        require_temperature(tau, f"temperatures[{position}]")


def require_features(what: str, value: Tensor, axes: str) -> None:
    """A floating-point tensor [..., rows, D] with rows ≥ 1 and D ≥ 1; `axes` names the last two, as in "B, D"."""
    allowed = f"allowed is a tensor [..., {axes}]"
    _require_floating(what, value, allowed)
    if value.ndim < 2:
        came = f"{what} has shape {list(value.shape)}"
        raise user_error(came, f"{allowed} with at least two dimensions", "add one with .unsqueeze(0)")
    if 0 in value.shape:
        came = f"{what} has shape {list(value.shape)}, which holds nothing"
        raise user_error(came, f"{allowed} with every dimension at least 1", "skip empty batches")


def require_weights(what: str, value: Tensor) -> None:
    """A floating-point tensor [..., n] with n ≥ 1."""
    allowed = "allowed is a tensor [..., n] with every dimension at least 1"
    _require_floating(what, value, allowed)
    if value.ndim == 0 or 0 in value.shape:
        raise user_error(f"{what} has shape {list(value.shape)}", allowed, "skip empty batches")


def _require_floating(what: str, value: Tensor, allowed: str) -> None:
    if not isinstance(value, Tensor):
        raise user_error(f"{what} is a {type(value).__name__}", allowed, "convert it with torch.as_tensor")
    if value.dtype not in _FLOATING:
        came = f"{what} has dtype {value.dtype}"
        raise user_error(came, "allowed are float64, float32, float16 and bfloat16", "call .float() on it")


def require_matrices(**tensors: Tensor) -> None:
    """Features of two dimensions, and the same number of them in each."""
    for name, value in tensors.items():
        require_features(name, value, "rows, D")
        if value.ndim != 2:
            raise user_error(f"{name} has shape {list(value.shape)}", "allowed is two dimensions", "flatten the others")
    require_same_dimension(**tensors)


def require_same_dimension(**features: Tensor) -> None:
    """The same D on the same device."""
    (first, a), *rest = features.items()
    for name, b in rest:
        if a.shape[-1] != b.shape[-1]:
            raise user_error(
                f"{first} has D = {a.shape[-1]} and {name} has D = {b.shape[-1]}",
                "the last dimensions must be equal",
                "take both from the same encoder",
            )
        if a.device != b.device:
            raise user_error(
                f"{first} is on {a.device} and {name} on {b.device}",
                "both must be on one device",
                f"call .to({first}.device)",
            )


def require_broadcastable(what: str, *shapes: Sequence[int]) -> None:
    """Shapes that broadcast against each other."""
    for sizes in zip(*(_from_the_end(shape, max(map(len, shapes))) for shape in shapes), strict=True):
        if len(set(sizes) - {1}) > 1:
            raise user_error(
                f"leading dimensions of {what} are {' and '.join(str(list(shape)) for shape in shapes)}",
                "they must broadcast",
                "unsqueeze or expand the missing ones",
            )


def _from_the_end(shape: Sequence[int], length: int) -> tuple[int, ...]:
    return (1,) * (length - len(shape)) + tuple(shape)


def require_mask(mask: Tensor, n: int, allowed: str, what: str = "mask") -> None:
    """A boolean mask whose last dimension runs over the n references; True = use. `allowed` names its shapes."""
    if not isinstance(mask, Tensor):
        came = f"{what} is a {type(mask).__name__}"
        raise user_error(came, f"allowed is a boolean tensor {allowed}", "convert it with torch.as_tensor")
    if mask.dtype is not torch.bool:
        raise user_error(
            f"{what} has dtype {mask.dtype}", "allowed is torch.bool with True = use", "call .bool() on it"
        )
    if mask.ndim < 1 or mask.shape[-1] != n:
        came = f"{what} has shape {list(mask.shape)}"
        raise user_error(came, f"allowed is {allowed}", "give one entry a reference")


def require_finite(**values: Tensor | None) -> None:
    """No NaN and no infinity. Looks at values, hence only on request."""
    for name, value in values.items():
        if value is not None and not bool(torch.isfinite(value).all()):
            raise user_error(
                f"{name} has {int((~torch.isfinite(value)).sum())} entries that are NaN or infinite",
                "allowed are finite numbers",
                "leave those rows out or repair their source",
            )


def require_log_kernel(log_k: Tensor) -> None:
    """What a kernel returned is below +∞ and not NaN. Looks at values, hence only on request."""
    wrong = ~(log_k < torch.inf)
    if bool(wrong.any()):
        raise user_error(
            f"the kernel returned {int(wrong.sum())} values that are NaN or +infinity",
            "allowed are logarithms of positive numbers, −infinity for none",
            "repair the kernel",
        )


def require_positive(what: str, value: float | Tensor | None, *, or_zero: bool = False) -> None:
    """Every entry of a tensor positive, or at least 0. Looks at values, hence only on request."""
    if isinstance(value, Tensor) and not bool((value >= 0 if or_zero else value > 0).all()):
        least = float(value.min())
        allowed = "allowed are numbers of at least 0" if or_zero else "allowed are positive numbers"
        raise user_error(f"{what} has an entry of {least}", allowed, "repair its source")
