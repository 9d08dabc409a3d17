"""Checks of tensors and temperatures, which raise `UserError`.

Shapes and temperatures are always checked. The values of tensors are checked only on request (`check_finite=True`),
because reading them synchronizes the device and breaks compilation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from truedrift.errors import UserError, read_number, short_repr

SMALLEST_TEMPERATURE = 1e-30
"""Lower bound for temperatures, so that τ and 1/τ stay within the range of float32."""

_FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def require_temperature(tau: float | Tensor, field: str = "tau") -> None:
    """Require a positive finite τ. For a tensor, check its shape and not its value."""
    if type(tau) is float and SMALLEST_TEMPERATURE <= tau < math.inf:  # the usual case, checked fast
        return
    if isinstance(tau, Tensor):
        allowed = "must be a positive number or a zero-dimensional tensor"
        if tau.ndim != 0:
            fix = "pass one temperature at a time, or use drift_loss for several"
            raise UserError(f"is a tensor of shape {list(tau.shape)}", allowed, fix, field=field)
        if tau.dtype not in _FLOATING:
            raise UserError(f"is a tensor of {tau.dtype}", f"{allowed} of floats", "pass a number", field=field)
        return
    if not SMALLEST_TEMPERATURE <= read_number(tau) < math.inf:
        raise UserError(
            f"is {short_repr(tau)}",
            f"must be a positive finite number, at least {SMALLEST_TEMPERATURE}",
            "use the scale of the distances, for example a tenth of their median",
            field=field,
        )


def require_temperatures(temperatures: Sequence[float]) -> None:
    """Require at least one temperature, all of them positive and finite."""
    field, fix = "temperatures", "pass for example (0.02, 0.05, 0.2)"
    if not isinstance(temperatures, (tuple, list)):
        allowed = "must be a tuple or list of positive numbers"
        raise UserError(f"is a {type(temperatures).__name__}", allowed, fix, field=field)
    if len(temperatures) == 0:
        raise UserError("is empty", "must hold at least one positive number", fix, field=field)
    for position, tau in enumerate(temperatures):
        require_temperature(tau, f"temperatures[{position}]")


def require_features(field: str, value: Tensor, axes: str) -> None:
    """Require a floating-point tensor whose last dimensions are `axes`, as in "B, D", with every dimension ≥ 1."""
    if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested:
        shape = value.shape
        if value.dtype in _FLOATING and 0 not in shape and len(shape) > axes.count(","):
            return
    # Say what is wrong.
    allowed = f"must be a tensor [..., {axes}] with every dimension ≥ 1"
    if not isinstance(value, Tensor):
        raise UserError(f"is a {type(value).__name__}", allowed, "convert it with torch.as_tensor", field=field)
    if value.layout is not torch.strided or value.is_nested:
        layout = "nested" if value.is_nested else str(value.layout)
        raise UserError(f"has the layout {layout}", allowed, "convert it with .to_dense()", field=field)
    if value.dtype not in _FLOATING:
        dtypes = "must be float64, float32, float16 or bfloat16"
        raise UserError(f"has dtype {value.dtype}", dtypes, "convert it with .float()", field=field)
    if 0 in shape:
        raise UserError(f"has shape {list(shape)} and is empty", allowed, "skip empty batches", field=field)
    raise UserError(f"has shape {list(shape)}", allowed, "add a dimension with .unsqueeze(0)", field=field)


def require_matrices(**tensors: Tensor) -> None:
    """Require tensors [rows, D] with the same D on the same device."""
    for field, value in tensors.items():
        require_features(field, value, "rows, D")
        if value.ndim != 2:
            allowed = "must have two dimensions"
            raise UserError(f"has shape {list(value.shape)}", allowed, "flatten the other dimensions", field=field)
    require_same_dimension(**tensors)


def require_same_dimension(**features: Tensor) -> None:
    """Require tensors [..., D] with the same D on the same device."""
    (first, a), *rest = features.items()
    for name, b in rest:
        if a.shape[-1] != b.shape[-1]:
            raise UserError(
                f"{first} has D = {a.shape[-1]} and {name} has D = {b.shape[-1]}",
                "their last dimensions must be equal",
                "compute both with the same encoder",
            )
        if a.device != b.device:
            raise UserError(
                f"{first} is on {a.device} and {name} is on {b.device}",
                "both must be on one device",
                f"move one with .to({first}.device)",
            )


def require_broadcastable(names: str, *shapes: Sequence[int]) -> None:
    """Require shapes that broadcast against each other; `names` lists the tensors, as in "x, y"."""
    if shapes.count(shapes[0]) == len(shapes):
        return
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    for sizes in zip(*padded, strict=True):
        if len(set(sizes) - {1}) > 1:
            raise UserError(
                f"the leading dimensions of {names} are {' and '.join(str(list(shape)) for shape in shapes)}",
                "they must broadcast",
                "unsqueeze or expand the missing ones",
            )


def expands_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Return whether a tensor of this shape broadcasts to `target` without enlarging it.

    Example:
        >>> expands_to((1, 3), (2, 4, 3)), expands_to((2, 3), (1, 3))
        (True, False)
    """
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, wanted) for size, wanted in pairs)


def require_mask(mask: Tensor, n: int, shapes: str, field: str = "mask") -> None:
    """Require a boolean mask with one entry per reference in its last dimension; True = use.

    `shapes` describes the shapes that are allowed, for the message.
    """
    if not isinstance(mask, Tensor):
        allowed = f"must be a boolean tensor {shapes}"
        raise UserError(f"is a {type(mask).__name__}", allowed, "convert it with torch.as_tensor", field=field)
    if mask.dtype is not torch.bool:
        allowed = "must be torch.bool with True = use"
        raise UserError(f"has dtype {mask.dtype}", allowed, "convert it with .bool()", field=field)
    if mask.ndim < 1 or mask.shape[-1] != n:
        allowed = f"must have shape {shapes}"
        raise UserError(f"has shape {list(mask.shape)}", allowed, "pass one entry per reference", field=field)


def require_finite(**values: Tensor | None) -> None:
    """Require tensors without NaN and infinity. Reads the values and synchronizes the device."""
    for field, value in values.items():
        if value is not None and value.is_meta:
            raise UserError("is on the device meta", "must have values", "pass a tensor on another device", field=field)
        if value is not None and not bool(torch.isfinite(value).all()):
            raise UserError(
                f"has {int((~torch.isfinite(value)).sum())} entries that are NaN or infinite",
                "all entries must be finite",
                "remove those rows or fix their source",
                field=field,
            )


def require_log_kernel(log_k: Tensor) -> None:
    """Require a kernel's log-values to be below +∞ and not NaN. Reads the values and synchronizes the device."""
    wrong = ~(log_k < torch.inf)
    if bool(wrong.any()):
        raise UserError(
            f"the kernel returned {int(wrong.sum())} values that are NaN or +infinity",
            "it must return logarithms: finite numbers, or −infinity for a weight of 0",
            "fix the kernel",
        )


def require_positive(field: str, value: float | Tensor | None, *, or_zero: bool = False) -> None:
    """Require every entry of a tensor to be > 0, or ≥ 0. Reads the values and synchronizes the device."""
    if isinstance(value, Tensor) and not bool((value >= 0 if or_zero else value > 0).all()):
        allowed = "all entries must be ≥ 0" if or_zero else "all entries must be greater than 0"
        raise UserError(f"has an entry of {float(value.min())}", allowed, "fix its source", field=field)
