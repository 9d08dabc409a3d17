"""What a user's mistake is answered with: one sentence that says what came, what is allowed and what to do.

Only the public functions call these checks; the mathematics below them trusts its input. Shapes, names and
temperatures are always checked. Values are looked at only on request (`check_finite=True`), because that
would synchronize a device and break compilation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def require_choice(what: str, value: object, allowed: Iterable[str]) -> None:
    """`value` is one of the names `allowed`."""
    names = tuple(allowed)
    if value not in names:
        raise ValueError(f"{what} is {value!r}; allowed are {', '.join(map(repr, names))}; choose one of them")


def require_temperature(tau: float | Tensor, what: str = "tau") -> None:
    """τ > 0 and finite. The value of a tensor is not looked at, only its shape."""
    if isinstance(tau, Tensor):
        if tau.ndim != 0:
            raise ValueError(
                f"{what} is a tensor of shape {list(tau.shape)}; allowed is a positive number or a tensor of no dimensions; "
                "pass one temperature at a time, or use drift_loss for several"
            )
        return
    if not (isinstance(tau, int | float) and math.isfinite(tau) and tau > 0):
        raise ValueError(
            f"{what} is {tau!r}; allowed is a positive finite number; take the scale of the distances, for example 0.1 times their median"
        )


def require_temperatures(temperatures: Sequence[float]) -> None:
    """At least one temperature, each one positive and finite."""
    if len(temperatures) == 0:
        raise ValueError(
            "temperatures is empty; allowed is one or more positive numbers; pass for example (0.02, 0.05, 0.2)"
        )
    for position, tau in enumerate(temperatures):
        require_temperature(tau, f"temperatures[{position}]")


def require_features(what: str, value: Tensor, axes: str) -> None:
    """A floating-point tensor [..., rows, D] with rows ≥ 1 and D ≥ 1; `axes` names the last two, as in "B, D"."""
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{what} is a {type(value).__name__}; allowed is a torch.Tensor [..., {axes}]; convert it with torch.as_tensor"
        )
    if value.dtype not in _FLOATING:
        raise ValueError(
            f"{what} has dtype {value.dtype}; allowed are float64, float32, float16 and bfloat16; call .float() on it"
        )
    if value.ndim < 2:
        raise ValueError(
            f"{what} has shape {list(value.shape)}; allowed is [..., {axes}] with at least two dimensions; add one with .unsqueeze(0)"
        )
    if 0 in value.shape:
        raise ValueError(
            f"{what} has shape {list(value.shape)}, which holds nothing; every dimension of [..., {axes}] must be at least 1; skip empty batches"
        )


def require_same_dimension(**features: Tensor) -> None:
    """The same D, the same device and leading dimensions that broadcast."""
    (first, a), *rest = features.items()
    for name, b in rest:
        if a.shape[-1] != b.shape[-1]:
            raise ValueError(
                f"{first} has D = {a.shape[-1]} and {name} has D = {b.shape[-1]}; the last dimensions must be equal; "
                "take both from the same encoder"
            )
        if a.device != b.device:
            raise ValueError(
                f"{first} is on {a.device} and {name} on {b.device}; both must be on one device; call .to({first}.device)"
            )
        require_broadcastable(f"{first}, {name}", a.shape[:-2], b.shape[:-2])


def require_broadcastable(what: str, *shapes: Sequence[int]) -> None:
    """Shapes that broadcast against each other."""
    try:
        torch.broadcast_shapes(*map(tuple, shapes))
    except RuntimeError:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise ValueError(
            f"leading dimensions of {what} are {listed}; they must broadcast; unsqueeze the missing ones"
        ) from None


def require_mask(mask: Tensor, B: int, n: int, what: str = "mask") -> None:
    """A boolean mask whose last dimension runs over the n references; True = use."""
    if mask.dtype is not torch.bool:
        raise ValueError(f"{what} has dtype {mask.dtype}; allowed is torch.bool with True = use; call .bool() on it")
    if mask.ndim < 1 or mask.shape[-1] != n:
        raise ValueError(
            f"{what} has shape {list(mask.shape)}; allowed is [..., {n}] or [..., {B}, {n}]; give one entry a reference"
        )


def require_finite(**values: Tensor | None) -> None:
    """No NaN and no infinity. Looks at values, hence only on request."""
    for name, value in values.items():
        if value is not None and not bool(torch.isfinite(value).all()):
            bad = int((~torch.isfinite(value)).sum())
            raise ValueError(
                f"{name} has {bad} entries that are NaN or infinite; allowed are finite numbers; mask those references or repair their source"
            )
