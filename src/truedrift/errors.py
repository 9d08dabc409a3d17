"""Errors caused by the user's input, and the checks that raise them.

A message is one sentence with three parts: the problem, what is allowed, how to fix it. Public functions call the
checks once; internal functions do not check again. Shapes, names and temperatures are always checked. The values
of tensors are checked only on request (`check_finite=True`), because reading them synchronizes the device and breaks
compilation.
"""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SMALLEST_TEMPERATURE = 1e-30
"""Lower bound for temperatures, so that τ and 1/τ stay within the range of float32."""

LARGEST_SAMPLE = 1 << 26
"""Limit for the numbers in one sample, 67 million: an image of 4096×4096 pixels has 50 million."""

_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that change the direction of the text after them."""
_FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class UserError(ValueError):
    """An error in the user's input, reported as one line. Any other exception is a bug in this library.

    Args:
        problem: What is wrong. With `field`, the predicate of that field: `"is -1"`.
        allowed: What is allowed instead.
        fix: What the user can do.
        field: The option or argument that is wrong, for example `optimizer.learning_rate`.

    Example:
        >>> print(UserError("is -1", "must be greater than 0", "pass a positive number", field="learning_rate"))
        learning_rate is -1; must be greater than 0; pass a positive number
    """

    def __init__(self, problem: str, allowed: str = "", fix: str = "", *, field: str | None = None) -> None:
        super().__init__(problem, allowed, fix)
        self.problem, self.allowed, self.fix, self.field = problem, allowed, fix, field

    @property
    def summary(self) -> str:
        """The field and the problem, without what is allowed and the fix."""
        return self.problem if self.field is None else f"{self.field} {self.problem}"

    def __str__(self) -> str:
        text = "; ".join(part for part in (self.summary, self.allowed, self.fix) if part)
        return " ".join(line.strip() for line in text.splitlines())  # the repr of a tensor has several

    def in_section(self, section: str) -> UserError:
        """Return this error with `section` put before its field, or before its problem if it has no field."""
        if self.field is None:
            return UserError(f"{section}: {self.problem}", self.allowed, self.fix)
        return UserError(self.problem, self.allowed, self.fix, field=f"{section}.{self.field}")

    def with_prefix(self, prefix: str) -> UserError:
        """Return this error with `prefix` put before its problem, for example the file that contains the mistake."""
        return UserError(f"{prefix}: {self.summary}", self.allowed, self.fix)


def error_text(error: object, longest: int = 300) -> str:
    """Return the message of an exception on one line, to be quoted in a `UserError`.

    Example:
        >>> error_text(FileNotFoundError(2, "No such file or directory"))
        'No such file or directory'
    """
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:longest]


def printable(text: str) -> str:
    r"""Escape control characters, which would otherwise act on the terminal; newlines and tabs stay.

    File names, class names and contents of files may hold any character. Everything that is printed goes through this
    function once.

    Example:
        >>> printable("red: " + chr(27) + "[31m")
        'red: \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or not _acts_on_terminal(c) else ascii(c)[1:-1] for c in text)


def _acts_on_terminal(character: str) -> bool:
    """Return whether it is a control character, a surrogate, or changes the direction of the text."""
    return unicodedata.category(character) in ("Cc", "Cs") or character in _DIRECTIONS


def list_names(names: Collection[str], most: int = 10) -> str:
    """Join names by commas; of many, the first ones and the number of the others.

    Example:
        >>> list_names(["a", "b", "c"]), list_names([str(i) for i in range(20_000)], most=2)
        ('a, b, c', '0, 1, … and 19,998 more')
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(list(names)[:most])}, … and {len(names) - most:,} more"


def read_number(value: object) -> float:
    """Return a number as float; NaN for what torch cannot compute with: a bool, a Fraction, an int beyond 64 bits.

    Example:
        >>> read_number(2), read_number(True), read_number(10**400)
        (2.0, nan, nan)
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    if isinstance(value, numbers.Rational) and not (isinstance(value, numbers.Integral) and abs(int(value)) < 1 << 63):
        return math.nan
    return float(value)


def short_repr(value: object, longest: int = 60) -> str:
    """Return the repr of a value, cut in the middle if it is long.

    Example:
        >>> short_repr(10**400, longest=12)
        '100000…000000'
    """
    try:
        text = repr(value)
    except ValueError:
        return "an integer with too many digits to be printed"
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-(longest // 2) :]}"


def require_choice(field: str, value: object, choices: Collection[str]) -> None:
    """Require that `value` is one of `choices`.

    Example:
        >>> require_choice("estimator", "best", ("abc", "standard"))
        Traceback (most recent call last):
            ...
        truedrift.errors.UserError: estimator is 'best'; must be one of 'abc', 'standard'; choose one of these
    """
    if not isinstance(value, str) or value not in choices:
        allowed = f"must be one of {', '.join(map(repr, choices))}"
        raise UserError(f"is {value!r}", allowed, "choose one of these", field=field)


def require_integer(field: str, value: object, minimum: int, example: int) -> None:
    """Require an integer of at least `minimum`; `example` is the value that the message suggests.

    Example:
        >>> require_integer("n", 0, 1, 8)
        Traceback (most recent call last):
            ...
        truedrift.errors.UserError: n is 0; must be an integer ≥ 1; pass for example 8
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        allowed = f"must be an integer ≥ {minimum}"
        raise UserError(f"is {short_repr(value)}", allowed, f"pass for example {example}", field=field)


def require_integers(
    field: str, value: object, minimum: int, maximum: int | None = None, *, ascending: bool = False
) -> None:
    """Require one or more integers from `minimum` to `maximum`, strictly ascending if asked for."""
    if not isinstance(value, (tuple, list)) or not value:
        raise UserError(f"is {value!r}", "must be one or more integers", "pass for example 2,4,8", field=field)
    for position, number in enumerate(value):
        require_integer(f"{field}[{position}]", number, minimum, max(minimum, 1))
    if ascending and (list(value) != sorted(set(value)) or (maximum is not None and value[-1] > maximum)):
        upper = "" if maximum is None else f" and ≤ {maximum}"
        allowed = f"must be strictly ascending integers ≥ {minimum}{upper}"
        raise UserError(f"is {value!r}", allowed, "sort them and pass each one once", field=field)


def require_even(field: str, value: int, example: int) -> None:
    """Require an even integer, for features that are half cosines and half sines."""
    if value % 2:
        allowed = "must be even, half for cosines and half for sines"
        raise UserError(f"is {value}", allowed, f"pass for example {example}", field=field)


def require_file(path: Path, suffixes: Collection[str]) -> None:
    """Require an existing file with one of these extensions."""
    allowed = f"must be a file that ends in {', '.join(suffixes)}"
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a directory", allowed, "pass a file")
    if path.suffix not in suffixes:
        problem = f"ends in {path.suffix!r}" if path.suffix else "has no extension"
        raise UserError(f"{str(path)!r} {problem}", allowed, "pass such a file")
    if not path.exists():
        raise UserError(f"{str(path)!r} does not exist", allowed, "check the path")
    if not path.is_file():
        raise UserError(f"{str(path)!r} is a FIFO or a device", allowed, "pass a regular file")


def import_package(module: str, purpose: str, extra: str) -> Any:
    """Import an optional package; `purpose` is what needs it, `extra` the extra of truedrift that installs it."""
    try:
        return import_module(module)
    except ImportError:
        fix = f"run pip install 'truedrift[{extra}]'"
        raise UserError(f"{module} is not installed", f"{purpose} requires it", fix) from None


def require_sample_shape(sample_shape: Sequence[int]) -> None:
    """Require the shape of one sample: (D,) for points or (C, H, W) for images, with sizes ≥ 1."""
    sizes = tuple(sample_shape)
    if len(sizes) not in (1, 3) or not all(type(size) is int and size >= 1 for size in sizes):
        problem = f"sample_shape is {sizes}" if len(sizes) <= 3 else f"sample_shape has {len(sizes)} entries"
        raise UserError(problem, "must be (D,) for points or (C, H, W) for images", "pass the shape of one sample")
    if math.prod(sizes) > LARGEST_SAMPLE:
        allowed = f"must have at most {LARGEST_SAMPLE:,} numbers per sample"
        raise UserError(f"sample_shape is {sizes}", allowed, "pass the shape of one sample")


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
